"""The package table of docs/design.md names every package and module of hipwright, in the order of the layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/hipwright"


def packages() -> list[str]:
    """The names in the first column of the table, in order."""
    section = (ROOT / "docs/design.md").read_text(encoding="utf-8").split("## Packages\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_every_package_is_in_the_table() -> None:
    found = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {path.stem for path in SOURCE.glob("*.py")}
    assert set(packages()) == found - {"__init__", "__main__"}


def test_the_order_is_that_of_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [layer.removeprefix("hipwright.") for layer in contracts[0]["layers"]]
    assert packages() == layers
