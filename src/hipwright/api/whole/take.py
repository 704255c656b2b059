"""The programs of `hipwright model --out` in a model of the caller's own process (docs/models.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.files import read_text
from hipwright.api.whole.files import FILE, FORMAT
from hipwright.errors import BadInput

if TYPE_CHECKING:
    import torch


def load_parts(
    folder: str | Path,
    model: torch.nn.Module,
    example_inputs: object,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Puts the folder's programs into a model, in place. example_inputs, example_kwargs: of one call of it.

    A part is replaced by a drop-in (`hipwright.optimize`), which runs the program where its guards hold and the part
    itself elsewhere. Returns the parts that stay, and why: those with another graph than the one that was verified, and
    all where no GPU is here on which the programs were. Raises BadInput for a folder that is none of a model.
    """
    from hipwright.api.live.optimize import arguments
    from hipwright.api.whole.load import LoadedModel
    from hipwright.api.whole.replaced import replaced_parts

    folder = Path(folder)
    try:
        plain = json.loads(read_text(folder / FILE, "model"))
        programs = plain["programs"] if plain["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / FILE} is no description of a model") from error
    if programs is None:
        raise BadInput(f"{folder / FILE} has format {plain['format']}", hint=f"this version reads {FORMAT}")
    kwargs = dict(example_kwargs or {})
    loaded = LoadedModel(model, arguments(example_inputs, kwargs), kwargs)
    for one in programs:
        place = folder / one["folder"]
        one["text"] = read_text(place / "task.py", "task")
        one["program"] = read_text(place / "program.py", "program")
    return replaced_parts(loaded, programs)
