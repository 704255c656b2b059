"""The suite of numeric hazards: its texts and pages, and first answers, which are right without giving anything up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.suite.tasks import find, suite_named
from hipwright.api.bench.plan import BenchRequest
from hipwright.api.bench.run import run_benchmark
from hipwright.evaluation.suite import find_tasks

ROOT = Path(__file__).parents[2]
TASKS = find(suite_named("hazards"))
SAMPLE = (
    "decompositions/whitening",
    "geometry/angles",
    "geometry/log_determinant",
    "losses/giou",
    "sequences/pcen",
    "statistics/layer_norm_4",
)


def test_the_folder_the_suite_and_the_page_are_the_same_tasks() -> None:
    assert {task.name for task in find_tasks(ROOT / "benchmarks/hazards")} == {task.name for task in TASKS}
    assert f"{len(TASKS)} " in suite_named("hazards").file.description
    assert f"`benchmarks/hazards/` has {len(TASKS)} small tasks" in (ROOT / "docs/suite.md").read_text(encoding="utf-8")
    for task in TASKS:
        line = task.path.read_text(encoding="utf-8").splitlines()[0]
        assert line.startswith('"""') and line.endswith('."""'), f"{task.name} does not say in one line what it is"


@pytest.mark.slow
def test_first_answers_give_nothing_up(tmp_path: Path) -> None:
    for name in SAMPLE:
        (tmp_path / "tasks" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / f"benchmarks/hazards/{name}.py", tmp_path / f"tasks/{name}.py")
    report = run_benchmark(BenchRequest(tmp_path / "tasks", ("cpu",), budget=1, seed=5, workers=2))
    assert {row.task: (row.status, row.given_up) for row in report.rows} == dict.fromkeys(SAMPLE, ("pass", ()))


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_all_first_answers_give_nothing_up() -> None:
    report = run_benchmark(BenchRequest(ROOT / "benchmarks/hazards", ("cpu",), budget=1, workers=2))
    assert {row.task: (row.status, row.given_up) for row in report.rows if row.status != "pass" or row.given_up} == {}
