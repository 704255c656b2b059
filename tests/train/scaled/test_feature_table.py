"""The table of features by trainer in docs/recipes.md: each cell names a test, or says why there is none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parents[1]
PAGE = HERE.parents[1] / "docs" / "recipes.md"
CELL = re.compile(r"`(?P<path>[\w/]+\.py)::(?P<test>test_\w+)`")


def rows() -> list[list[str]]:
    """The cells of the table's rows."""
    section = PAGE.read_text().split("## One algorithm, three trainers", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def defined(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_each_cell_names_a_test_or_says_that_it_is_not_there() -> None:
    table = rows()
    assert len(table) >= 10 and all(len(row) == 4 for row in table)
    for feature, *cells in table:
        for cell in cells:
            found = CELL.fullmatch(cell)
            assert found or re.match(r"not there: .{10,}", cell), (feature, cell)
            if found:
                assert found["test"] in defined(HERE / found["path"]), (feature, cell)
        assert all(CELL.fullmatch(cell) for cell in cells[:2]), f"{feature}: the own loop and TRL have every feature"
