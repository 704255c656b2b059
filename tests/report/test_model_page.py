"""The page of a whole model: what is replaced, what stays and why, and names that are hostile."""

from __future__ import annotations

from typing import Any

from hipwright.report.models.page import render_model

ROW: dict[str, Any] = {
    "place": "blocks.0 … blocks.2",
    "kind": "<script>alert(1)</script>",
    "calls": 3,
    "before": 0.8,
    "after": 0.6,
    "factor": 2.5,
    "basis": "ESTIMATE",
    "kept": True,
    "why": "",
    "report": "00_Block/report.html",
    "run": "20260101-000000-abcd",
}
MODEL: dict[str, Any] = {
    "class": "Net",
    "parameters": 1234567,
    "inputs": ["float32 [1, 3]"],
    "times": "estimate",
    "where": "Instinct MI300X",
    "microseconds": 12.5,
    "operators": 7,
    "command": "hipwright model net.py",
    "lines": ["3 parts run 1 verified programs"],
    "not_measured": ["no GPU was used"],
    "regions": [
        {"why": "not among the regions that were searched", "paths": ["head"], "class": "Linear", "share": 0.1}
    ],
    "stays": [{"path": "", "class": "Net", "share": 0.1, "why": "taken in parts: 90 operators"}],
    "rows": [ROW, {**ROW, "place": "stem", "kept": False, "factor": None, "why": "its program is not faster"}],
}


def test_the_page_says_what_is_replaced_and_why_the_rest_stays() -> None:
    page = render_model(MODEL)
    assert "1 of 2 regions replaced" in page and "1,234,567 parameters" in page and "2.5x ESTIMATE" in page
    for said in ("its program is not faster", "taken in parts: 90 operators", "not measured: no GPU was used", "head"):
        assert said in page
    assert "<script" not in page


def test_a_model_of_which_nothing_is_replaced_is_unchanged() -> None:
    page = render_model({**MODEL, "rows": [{**ROW, "kept": False, "why": "no program was verified"}]})
    assert "unchanged" in page and "no program was verified" in page
