"""Progress without a terminal: a line for each new best and stage, few for the rest, nothing hostile."""

from __future__ import annotations

import sys

import pytest

from hipwright.cli.display.progress import SearchProgress
from hipwright.cli.output import rich_console


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchProgress("task.py", 10) as progress:
        progress("stage", {"text": "opening\x1b[2J"})
        progress("evaluated", {"number": 0, "status": "pass", "score": 9.5, "evaluations": 1})
        progress("decided", {"number": 0, "best": True, "score": 9.5})
        for number in range(1, 9):
            progress("evaluated", {"number": number, "status": "wrong_value", "message": "no", "evaluations": number})
        progress("unheard_of", {})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 4, "the lines in between are held back"
    assert "\\x1b" in lines[0] and "\x1b" not in "".join(lines)
    assert any("new best #0: 9.50 µs (ESTIMATE)" in line for line in lines)
    progress("decided", {"number": 9, "best": True, "score": 4.0, "score_kind": "measured"})
    assert "new best #9: 4.00 µs (MEASURED)" in capsys.readouterr().err
    assert progress.statuses == {"pass": 1, "wrong_value": 8}


def test_panel(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SearchProgress("task.py", 10)
    progress("evaluated", {"number": 3, "status": "timeout", "message": "[red]slow", "evaluations": 4})
    rich_console(sys.stdout).print(progress._panel())
    shown = capsys.readouterr().out
    assert "4/10 evaluations" in shown and "timeout 1" in shown and "[red]slow" in shown and "none yet" in shown
