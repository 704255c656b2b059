"""Through the suite in the time there is: tasks side by side, each record kept as soon as it is there."""

from __future__ import annotations

import queue
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.suite.measure import OneTask, Options, failed
from benchmarks.suite.records import Measured, Records, Stage
from benchmarks.suite.tasks import SuiteTask
from hipwright.archive import Archive
from hipwright.engine.tuned import TuningCache
from hipwright.errors import HipwrightError
from hipwright.events import silent
from hipwright.machine import Machine

ROOM_BYTES = 4 << 30
"""What the tasks that are measured at a time may move together, unless one is alone: an expectation in float64 takes
many times as much."""
GUESS_S = 40.0  # of a task, before any was measured


class Room:
    """Lanes that share a machine: a task waits until there is room for its bytes, and nobody overtakes it."""

    def __init__(self, most: int = ROOM_BYTES) -> None:
        self._changed = threading.Condition()
        self._most, self._held, self._inside = most, 0, 0
        self._line: deque[object] = deque()

    @contextmanager
    def take(self, bytes_: int) -> Iterator[None]:
        """Be inside; one that needs more than there is in all is alone."""
        me = object()
        with self._changed:
            self._line.append(me)
            self._changed.wait_for(lambda: self._line[0] is me and self._fits(bytes_))
            self._line.popleft()
            self._held, self._inside = self._held + bytes_, self._inside + 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._held, self._inside = self._held - bytes_, self._inside - 1
                self._changed.notify_all()

    def _fits(self, bytes_: int) -> bool:
        return not self._inside or self._held + bytes_ <= self._most


@dataclass
class Runner:
    """One run of at most `deadline` (time.monotonic). home: of the search's archive and the tuning cache."""

    machine: Machine
    records: Records
    options: Options
    deadline: float
    home: Path
    again: bool = False
    _room: Room = field(default_factory=Room)
    _spent: list[float] = field(default_factory=list)
    _write: threading.Lock = field(default_factory=threading.Lock)

    def run(self, tasks: Sequence[SuiteTask]) -> int:
        """Measure what is missing, in order; returns how many tasks are left."""
        todo: queue.SimpleQueue[SuiteTask] = queue.SimpleQueue()
        wanted = [task for task in tasks if self.again or self._missing(task)]
        for task in wanted:
            todo.put(task)
        threads = [threading.Thread(target=self._lane, args=(todo,), daemon=True) for _ in range(self.options.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.machine.close()  # what runs in it raises, and is measured again another time
            for thread in threads:
                thread.join(10.0)
        return sum(bool(self._missing(task)) for task in tasks)

    def _missing(self, task: SuiteTask) -> list[Stage]:
        return [stage for stage in self._stages() if not self.records.done(task.name, task.key, stage)]

    def _stages(self) -> list[Stage]:
        if not self.options.timed:
            return ["opened"]
        return ["first", "search"] if self.options.evaluations else ["first"]

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _lane(self, todo: queue.SimpleQueue[SuiteTask]) -> None:
        while time.monotonic() + (median(self._spent) if self._spent else GUESS_S) < self.deadline:
            try:
                task = todo.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            self._task(task)
            self._spent.append(time.monotonic() - start)

    def _task(self, task: SuiteTask) -> None:
        stages = self._missing(task) or self._stages()
        stage, start = stages[0], time.perf_counter()
        try:
            with self.machine.open(task.path, seed=None, listener=silent) as bench:
                one = OneTask(task, bench, self.options, start)
                waiting = time.perf_counter()
                traffic = one.gpu.traffic  # nothing that a first answer needs
                with self._room.take(traffic.bytes if traffic is not None else ROOM_BYTES):
                    one.waited(time.perf_counter() - waiting)
                    for stage in stages:
                        self._keep(self._searched(one) if stage == "search" else one.first(stage))
        except HipwrightError as error:
            if not self._late():
                self._keep(failed(task, stage, error.status, error.fault, error.message))
        except Exception as error:  # a bug of ours costs a task, not the run
            if not self._late():
                self._keep(failed(task, stage, "unscorable", "service", f"{type(error).__name__}: {error}"))

    def _searched(self, one: OneTask) -> Measured | None:
        with (
            tempfile.TemporaryDirectory(prefix="suite-", dir=self.home) as folder,
            Archive(Path(folder)) as archive,
        ):
            return one.searched(archive, TuningCache(self.home), self._late)

    def _keep(self, row: Measured | None) -> None:
        if row is None:
            return
        with self._write:
            self.records.add(row)
        print(line(row), file=sys.stderr, flush=True)


def line(row: Measured) -> str:
    """A record in a line."""
    if not row.passed:
        return f"{row.task} {row.stage}: {row.status} ({row.message[:160]})"
    sides = "  ".join(f"{name} {one.speedup:.2f}x" for name, one in row.sides.items())
    first = f"  verified after {row.first_s:.1f} s" if row.first_s is not None else ""
    return f"{row.task} {row.stage}: {1e3 * (row.median_ms or 0):.1f} us  {sides}{first}"
