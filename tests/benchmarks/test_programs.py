"""Programs to measure with: lines, or a folder that `bench` takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from hipwright.api.bench.plan import BenchRequest, plan_benchmark
from hipwright.program import parse

ROOT = Path(__file__).parents[2]
TASKS = [ROOT / "examples/bias_gelu.py", ROOT / "examples/rmsnorm_swiglu.py"]


def test_a_folder_holds_what_bench_takes_and_the_lines_say_the_same(tmp_path: Path) -> None:
    lines, folder = tmp_path / "programs.jsonl", tmp_path / "folder"
    for out in (lines, folder):
        assert main(["programs", str(out), *map(str, TASKS), "--each", "3"]) == 0
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    plan = plan_benchmark(BenchRequest(folder / "tasks", ("cpu",), candidates=folder / "candidates"))
    assert len(plan.entries) == len(rows) == 6
    written = [one.read_text() for one in sorted((folder / "candidates").iterdir())]
    assert any(row["knobs"] for row in rows)
    for row, text in zip(rows, written, strict=True):
        chosen = parse(row["text"]).choose(row["knobs"])
        assert parse(text).choose() == chosen


def test_a_task_outside_of_the_repository_has_its_own_path(tmp_path: Path) -> None:
    task, out = tmp_path / "mine.py", tmp_path / "programs.jsonl"
    task.write_text(TASKS[0].read_text())
    assert main(["programs", str(out), str(task), "--each", "1"]) == 0
    assert json.loads(out.read_text())["task"] == str(task)


def test_a_missing_task_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["programs", str(tmp_path / "a.jsonl"), str(tmp_path / "none.py")]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "a.jsonl").exists()
