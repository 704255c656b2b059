"""The lines of `hipwright model` while several regions are searched: each says whose it is."""

from __future__ import annotations

import re

import pytest

from hipwright.cli.output import CommandOutput
from hipwright.cli.whole import progress


def test_lines_of_regions_that_are_searched_beside_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    told = progress.ModelProgress(CommandOutput())
    told("stage", {"text": "profiling Net"})
    for number, budget in ((0, 5), (1, 3)):
        told("region", {"number": number, "paths": [f"layer{number}"], "budget": budget, "region": number})
    told("evaluated", {"evaluations": 2, "status": "pass", "region": 0})
    told("decided", {"best": True, "number": 1, "score": 12.0, "score_kind": "measured", "region": 1})
    told("region done", {"number": 1, "seconds": 3.25, "kept": False, "why": "it is slower", "region": 1})
    told("region done", {"number": 0, "seconds": 4.0, "kept": True, "why": "", "region": 0})
    told("stage", {"text": "replacing 1 regions"})
    lines = [re.sub(r"^\[ *[0-9.]+s", "[", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "[] profiling Net",
        "[ region 1] layer0: a search of 5 evaluations",
        "[ region 2] layer1: a search of 3 evaluations",
        "[ region 1] 2/5 evaluations, pass",
        "[ region 2] new best #1: 12.00 µs (MEASURED)",
        "[ region 2] left after 3.2 s: it is slower",
        "[ region 1] found after 4.0 s",
        "[] replacing 1 regions",
    ]
