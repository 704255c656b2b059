"""`python -m benchmarks compare`: programs written by hand beside the engine's own (on the processor)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from hipwright.engine import write
from tests.engine.harness import Op, captured
from tests.kernels_suite.test_knobs import TASK


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.py"
    path.write_text(TASK)
    return path


@pytest.fixture(scope="module")
def text() -> str:
    import torch

    return write(captured(Op(lambda x, y: x.relu() + y), [torch.randn(64, 40), torch.randn(64, 40)])).text


def test_programs_are_timed_and_wrong_ones_marked(
    task: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert " relu(" in text
    same, wrong, out = tmp_path / "same.py", tmp_path / "other/wrong.py", tmp_path / "out.jsonl"
    wrong.parent.mkdir()
    same.write_text(text)
    wrong.write_text(text.replace(" relu(", " fabsf("))
    asked = ["--target", "cpu", "--rounds", "2", "--out", str(out)]
    assert main(["compare", str(task), str(same), str(wrong), *asked]) == 0
    told = json.loads(out.read_text())
    assert set(told["us"]) == {"default", "eager", "copy", str(same), str(wrong)} and all(
        us > 0 for us in told["us"].values()
    )
    assert list(told["off"]) == [str(wrong)] and told["off"][str(wrong)] > 0.1
    assert "wrong.py  OFF by" in capsys.readouterr().out


def test_what_does_not_run_is_told(task: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(" relu(", " relu(("))
    assert main(["compare", str(task), str(broken), "--target", "cpu", "--rounds", "1"]) == 1
    assert "broken.py: refused: " in capsys.readouterr().out
    broken.write_text("not a program")
    assert main(["compare", str(task), str(broken), "--target", "cpu"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "broken.py" in told
    assert main(["compare", str(task), str(tmp_path / "nowhere.py"), "--target", "cpu"]) == 2
