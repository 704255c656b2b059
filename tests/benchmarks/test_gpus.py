"""`python -m benchmarks gpus`: the figures of its rows, its sample of tasks, and whom it kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.fleet import gpus, gpus_rows
from benchmarks.fleet.seat_killer import end_marked, marked
from hipwright.evaluation.bench import ROWS, BenchRow

MARK = "HIPWRIGHT_TEST_MARK"


def row(task: str, *, correct: bool = True, fault: str | None = None, seconds: float = 1.0) -> BenchRow:
    status = "pass" if correct else "wrong_value"
    names = {"key": f"key {task}", "task": task, "candidate": "engine", "sample": 0}
    return BenchRow.from_dict({**names, "status": status, "fault": fault, "correct": correct, "seconds": seconds})


def test_efficiency_is_that_of_the_tasks_both_runs_ended(tmp_path: Path) -> None:
    for count, seconds in ((1, 1.0), (4, 1.25)):
        folder = tmp_path / f"bench-{count}"
        folder.mkdir()
        rows = [row(f"t{number}", seconds=seconds) for number in range(6 * count)]
        (folder / ROWS).write_text("".join(one.to_json() + "\n" for one in rows) + '{"cut off')
    found = gpus_rows.efficiencies(tmp_path, [1, 4])["of"]["4"]
    assert (found["tasks"], found["efficiency"], found["interval"]) == (6, 0.8, [0.8, 0.8])


def test_lost_double_and_wrong_rows_are_counted_and_faults_are_no_verdicts() -> None:
    known = {name: row(name) for name in "abcde"}
    rows = [row("a"), row("a"), row("b", correct=False), row("c", correct=False, fault="service")]
    found = gpus_rows.compared(rows, list("abcd"), known)
    assert (found["lost"], found["double"], found["wrong_tasks"]) == (1, 1, ["b"])
    assert list(found["unjudged"]) == ["c"]


def test_a_verdict_of_score_that_depends_on_the_number_of_gpus_is_wrong() -> None:
    one = {"used": 1, "programs_a_second": 10.0, "verdicts": ["pass", "wrong_value"]}
    two = {"used": 2, "programs_a_second": 18.0, "verdicts": ["pass", "pass"]}
    assert gpus_rows.score_efficiencies([one, {"failed": "no"}, two]) == {
        "against": 1,
        "of": {"1": 1.0, "2": 0.9},
        "wrong": 1,
    }


def test_the_sample_is_random_the_same_each_time_and_keeps_its_order(tmp_path: Path) -> None:
    (tmp_path / "some/deep").mkdir(parents=True)
    for number in range(9):
        (tmp_path / "some/deep" / f"n{number}.py").write_text(f"# {number}\n")
    first = gpus.sampled(tmp_path / "some", 5, 3, tmp_path / "one")
    assert first == gpus.sampled(tmp_path / "some", 5, 3, tmp_path / "two") == sorted(first)
    assert sorted(path.stem for path in (tmp_path / "one").iterdir()) == first and len(first) == 5


def test_a_part_that_fails_is_a_line_and_the_next_one_runs(tmp_path: Path) -> None:
    def fails() -> dict[str, int]:
        raise OSError("no disk")

    recorder = gpus.Recorder(tmp_path / "out.jsonl")
    recorder.run("bench", 1, fails)
    recorder.run("score", 1, lambda: {"rows": 3})
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert "no disk" in lines[0] and '"rows": 3' in lines[1] and recorder.failed


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_only_marked_processes_and_their_children_are_ended() -> None:
    mine, waits = f"mine-{os.getpid()}", "import time; time.sleep(60)"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{waits}'], env={{}}); {waits}"
    ours = subprocess.Popen([sys.executable, "-c", child], env={**os.environ, MARK: mine})
    other = subprocess.Popen([sys.executable, "-c", waits], env={**os.environ, MARK: "other"})
    try:
        until = time.monotonic() + 20
        while len(marked(MARK, mine)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(marked(MARK, mine)) == 2, "a child without the variable counts too"
        end_marked(MARK, mine)
        assert ours.wait(5) == -signal.SIGTERM and other.poll() is None and not marked(MARK, mine)
    finally:
        for one in (ours, other):
            one.kill()
            one.wait()
