"""Links to sections of pages lead to headings that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PAGES = [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").rglob("*.md")), REPO / "scripts/README.md"]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = (re.sub(r"[`*]", "", heading).strip().lower() for heading in re.findall(r"(?m)^#+ (.*)$", prose))
    return frozenset(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(REPO)) for page in PAGES])
def test_sections_that_are_linked_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if ":" not in target:
            linked = (page.parent / target).resolve() if target else page
            assert anchor in anchors(linked), f"{target}#{anchor}"
