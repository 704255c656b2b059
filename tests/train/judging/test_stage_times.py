"""StageTimes: sums over threads, busy time, and the trace."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hipwright.train.judging import stage_times
from hipwright.train.judging.stage_times import StageTimes


class Clock:
    """A clock that tests set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stage_times, "time", made)
    return made


def test_overlapping_stages_are_summed_and_counted_once(clock: Clock) -> None:
    told = StageTimes()
    first, second = told.during("verify", "gpu"), told.during("time", "gpu")
    clock.now = 1.0
    with first:
        clock.now = 3.0
        with second:
            clock.now = 4.0
    clock.now = 10.0
    stages = told.figures()["stages"]
    assert stages["verify"] == {"count": 1, "sum_s": 3.0, "busy_s": 3.0, "busy_share": 0.3}
    assert stages["gpu"] == {"count": 2, "sum_s": 4.0, "busy_s": 3.0, "busy_share": 0.3}


def test_a_stage_in_progress_counts_as_busy(clock: Clock) -> None:
    told = StageTimes()
    with told.during("open"):
        clock.now = 2.0
        assert told.figures()["stages"]["open"] == {"count": 0, "sum_s": 0.0, "busy_s": 2.0, "busy_share": 1.0}
        told.restart()
        clock.now = 3.0
        assert told.figures()["stages"]["open"]["busy_s"] == 1.0
    clock.now = 4.0
    assert told.figures() == {
        "wall_s": 2.0,
        "stages": {"open": {"count": 1, "sum_s": 3.0, "busy_s": 1.0, "busy_share": 0.5}},
    }


def test_an_error_ends_a_stage(clock: Clock) -> None:
    told = StageTimes()
    with pytest.raises(KeyError), told.during("build"):
        clock.now = 1.0
        raise KeyError
    clock.now = 5.0
    assert told.figures()["stages"]["build"]["busy_s"] == 1.0


def test_many_threads(tmp_path: Path) -> None:
    told, barrier = StageTimes(), threading.Barrier(8)

    def work() -> None:
        barrier.wait(5)
        for _ in range(50):
            with told.during("work", what="a task"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = told.figures()["stages"]["work"]
    assert found["count"] == 400 and found["busy_s"] <= told.figures()["wall_s"]
    told.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == 400 and len({event["tid"] for event in events}) == 8
    assert all(event["dur"] >= 0 and event["args"] == {"what": "a task"} for event in events)
