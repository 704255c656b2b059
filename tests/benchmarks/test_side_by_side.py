"""The eight large tasks, at a small size: files that load, run and have the bytes that were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.commands.side_by_side import TASKS, _print, write_tasks
from hipwright.task.host.load import TaskModule
from hipwright.task.host.reference import named_leaves


@pytest.mark.parametrize("nbytes", [2e6, 2e7])
def test_each_task_has_its_size(tmp_path: Path, nbytes: float) -> None:
    files = write_tasks(tmp_path, nbytes)
    assert [file.stem for file in files] == list(TASKS) and len(files) == 8
    for file in files:
        module = TaskModule(file.name, file.read_text())
        inputs = module.inputs(0, None)
        with torch.no_grad():
            outputs = module.model(0)(*inputs)
        held = sum(t.numel() * t.element_size() for _, t in (*named_leaves("", inputs), *named_leaves("", outputs)))
        least = 8 * sum(
            t[0].numel() * t.element_size() for _, t in (*named_leaves("", inputs), *named_leaves("", outputs))
        )
        assert 0.9 * nbytes < held < 1.1 * nbytes or held <= 1.01 * least, file.stem


def test_twenty_gigabytes_are_in_the_text(tmp_path: Path) -> None:
    texts = {file.stem: file.read_text() for file in write_tasks(tmp_path, 20e9, "scale")}
    assert "torch.randn(610352, 4096)" in texts["scale_relu_fp32"], "10 GB in, 10 GB out"


def test_the_exit_code_is_that_all_pass(capsys: pytest.CaptureFixture[str]) -> None:
    good = {"status": "pass", "fault": None, "seconds": 1.0, "waited": 0.5, "speedups": {"eager": {"speedup": 2.0}}}
    bad = {**good, "status": "launch_error", "fault": "candidate", "message": "out of memory", "speedups": {}}
    assert _print([("a", {**good, "message": ""})], 1.0) == 0
    assert _print([("a", {**good, "message": ""}), ("b", bad)], 1.0) == 1
    assert _print([("a", None)], 1.0) == 1
    assert "1 of 2 pass" in capsys.readouterr().out


def test_wrong_options_end_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["side-by-side", "--gb", "0", "--target", "cpu"]) == 2
    assert main(["side-by-side", "--only", "nothing", "--target", "cpu"]) == 2
    assert capsys.readouterr().err.count("error:") == 2
