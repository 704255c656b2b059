"""Standby processes, which replace a crashed one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import WorkerError
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import GPU_WORKER
from hipwright.verify.standby import Standby
from tests import warm


class Made:
    """A session that counts."""

    def __init__(self) -> None:
        self.running, self.closed = True, False

    def close(self) -> None:
        self.running, self.closed = False, True


def until(reply: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not reply():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_one_that_waits_is_taken_and_another_started() -> None:
    made: list[Made] = []
    standby = Standby(lambda: (made.append(Made()), made[-1])[1], 2)  # type: ignore[arg-type,return-value]
    assert not made, "nothing runs before somebody needs it"
    first = standby.take()
    until(lambda: standby.ready == 2)
    assert len(made) == 3 and first in made
    second = standby.take()
    until(lambda: standby.ready == 2)
    assert second is not first and len(made) == 4
    for one in made:  # as when the machine's memory runs out
        one.running = False
    third = standby.take()
    assert third.running and all(one.closed for one in made[1:4] if one is not second)
    standby.close()
    assert all(one.closed for one in made if one not in (first, second, third)) and standby.ready == 0
    assert standby.take().running and standby.ready == 0, "who still needs one gets one"


def test_starting_waits_for_the_gate_and_a_failure_is_told_to_who_takes() -> None:
    gate, tries = threading.Event(), []

    @contextmanager
    def around() -> Iterator[None]:
        gate.wait(20)
        yield

    def start() -> Any:
        tries.append(threading.current_thread().name)
        if len(tries) > 1:
            raise WorkerError("no room")
        return Made()

    standby = Standby(start, 1, around)
    standby.take()
    time.sleep(0.05)
    assert tries == [threading.current_thread().name]
    gate.set()
    until(lambda: tries[-1] == "standby")
    assert standby.ready == 0
    with pytest.raises(WorkerError):
        standby.take()
    standby.close()


@pytest.mark.slow
def test_a_worker_whose_process_is_killed_goes_on_with_one_that_waited() -> None:
    """Real processes; one that dies while it waits is not used."""
    preload = ("torch", GPU_WORKER.partition(":")[0])
    with warm.zygote(preload, name="worker") as zygote, CandidateWorker(zygote, "cpu", "cpu", warm.builds()) as worker:
        standby = worker.standby = Standby(worker.start, 2)
        worker.open()
        until(lambda: standby.ready == 2)
        waiting = list(standby._ready)
        os.kill(os_pid(waiting[0]), signal.SIGKILL)
        until(lambda: not waiting[0].running)
        worker.recycle()
        worker.open()
        assert worker.session is waiting[1] and worker.session.running and not waiting[0].alive
        standby.close()


def os_pid(session: Any) -> int:
    """The process behind a pidfd, as this namespace numbers it."""
    lines = Path(f"/proc/self/fdinfo/{session._pidfd}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
