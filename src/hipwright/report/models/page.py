"""model.html: a whole model's regions on one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright import __version__
from hipwright.report import html

LEAST_SHOWN = 0.0005
"""Share of the time below which what stays has no row."""


def render_model(model: Mapping[str, Any]) -> str:
    """Renders the object of model.json with "lines", its sentences, and "rows", its regions for people."""
    text: str = (
        html.environment()
        .get_template("model.html.j2")
        .render(
            model=model,
            version=__version__,
            kept=[row for row in model["rows"] if row["kept"]],
            stays=[one for one in model["stays"] if one["share"] >= LEAST_SHOWN],
            others=[one for one in model["regions"] if one["why"].startswith("not among")],
        )
    )
    return text
