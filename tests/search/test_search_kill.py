"""Searches killed by SIGKILL at random moments: no completed work is lost or repeated, and the outcome is unchanged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from landscape import TASK, Judge, begin, go_on

from hipwright.archive import Archive, export, list_runs, read_log
from hipwright.errors import BadInput

VICTIM = Path(__file__).with_name("victim.py")
DELAY = "0.02"


def start(home: Path, workers: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(VICTIM), str(home), str(home / "tally"), DELAY, str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(home: Path, workers: int) -> float:
    """Runs the victim to its end; returns the seconds it took."""
    with start(home, workers) as child:
        assert child.stdout is not None
        child.stdout.readline()
        begun = time.monotonic()
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
        return time.monotonic() - begun


def kill_at_random(home: Path, workers: int, rng: random.Random, longest: float) -> bool:
    """Starts the victim, waits until it works (not in one case of five), and kills it. True if it was running."""
    with start(home, workers) as child:
        if rng.random() > 0.2:
            assert child.stdout is not None
            child.stdout.readline()
        time.sleep(rng.uniform(0.0, longest))
        alive = child.poll() is None
        child.send_signal(signal.SIGKILL)
    return alive


def evaluated(home: Path) -> list[tuple[int, str]]:
    with Archive(home) as archive:
        events = archive.events(archive.run("latest").id) if archive.runs() else []
    return [(e.number, e.data["evaluation"]["program"]) for e in events if e.kind == "evaluated"]


def canonical(home: Path) -> str:
    with Archive(home) as archive:
        return export(archive, "latest", canonical=True)


@pytest.mark.parametrize(("workers", "kills"), [(1, 20), (3, 8)])
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, workers: int, kills: int) -> None:
    whole, home = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, home):
        folder.mkdir()
    longest = 2.0 * finish(whole, workers) / kills  # so that together they about end the run, on any machine
    rng = random.Random(workers)
    seen: list[tuple[int, str]] = []
    hit = 0
    for _ in range(kills):
        hit += kill_at_random(home, workers, rng, longest)
        now = evaluated(home)
        assert now[: len(seen)] == seen, "a completed evaluation was lost"
        assert len({number for number, _ in now}) == len(now) <= 24
        seen = now
    finish(home, workers)
    assert canonical(home) == canonical(whole)
    with Archive(home) as archive:
        log = read_log(archive.events(archive.run("latest").id))
    assert len(log.evaluated) == 24 and log.resumes >= 2
    # only what a kill cut off before it was recorded (at most one a worker) may have been evaluated again
    tally = Counter((home / "tally").read_text().split())
    assert sum(count - 1 for count in tally.values()) <= hit * workers


def test_no_recorded_evaluation_is_repeated(tmp_path: Path) -> None:
    """Stops after every single evaluation: the judge is called exactly once per program."""
    judge = Judge()

    def after_one_more() -> Callable[[], bool]:
        already = len(judge.calls)
        return lambda: len(judge.calls) > already

    with Archive(tmp_path) as archive:
        result = begin(archive, judge, budget=12, stop_requested=after_one_more())
        stops = 1
        while result.interrupted:
            result = go_on(archive, judge, stop_requested=after_one_more())
            stops += 1
        assert result.evaluations == 12 and stops >= 12
        assert max(Counter(judge.calls).values()) == 1


def test_two_processes_cannot_work_on_one_run(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, str(VICTIM), str(tmp_path), str(tmp_path / "tally"), "0.3"])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with Archive(tmp_path) as archive:
                if archive.runs() and archive.is_locked(archive.run("latest").id):
                    break
            time.sleep(0.02)
        with Archive(tmp_path) as archive:
            assert list_runs(archive)[0].status == "running"
            assert list_runs(archive)[0].task == TASK.name
            with pytest.raises(BadInput, match="another process"):
                go_on(archive)
            child.kill()
            child.wait()
            assert list_runs(archive)[0].status == "interrupted"
            assert go_on(archive).reason == "budget"
            assert list_runs(archive)[0].status == "finished"
    finally:
        child.kill()
        child.wait()
