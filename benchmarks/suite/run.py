"""The suite on the benchmark driver: tasks side by side until time is over, each record kept as soon as it is there."""

from __future__ import annotations

import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.suite.measure import OpenSuiteTask, SuiteSettings, failed
from benchmarks.suite.memory import LIMIT_BYTES, MemoryQueue
from benchmarks.suite.records import Measured, Records, Stage
from benchmarks.suite.tasks import SuiteTask
from hipwright.api.bench.driver import BenchDeadline, DeadlinePassed, TaskWorker, run_jobs
from hipwright.archive import Archive
from hipwright.engine.tuned import TuningCache
from hipwright.errors import HipwrightError
from hipwright.evaluation.pool import JobOutcome
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.machine import Machine, Workbench

GUESS_S = 40.0  # of a task, before any was measured


@dataclass
class SuiteRun:
    """One run of at most `until` (time.monotonic). home: the folder of the searches' archives and the tuning cache.

    again: measures tasks that the records hold already. It is the `TaskMeasurement` of the driver's workers.
    """

    machine: Machine
    records: Records
    settings: SuiteSettings
    until: float
    home: Path
    again: bool = False
    _memory: MemoryQueue = field(default_factory=MemoryQueue)
    _write: threading.Lock = field(default_factory=threading.Lock)
    _under_way: dict[str, Stage] = field(default_factory=dict)

    def run(self, tasks: Sequence[SuiteTask]) -> int:
        """Measures what is missing, in order; returns how many tasks are left."""
        todo = [task for task in tasks if self.again or self._missing(task)]
        deadline = BenchDeadline(self.until, GUESS_S)
        workers = [
            TaskWorker(f"worker {number}", self.machine, self, deadline=deadline, keep_open=False)
            for number in range(self.settings.workers)
        ]
        jobs = [EvaluationJob(task.name, task.name, task) for task in todo]
        run_jobs(workers, jobs, on_done=self._done, attempts=1, hang_s=math.inf, deadline=deadline)
        return sum(bool(self._missing(task)) for task in tasks)

    def _missing(self, task: SuiteTask) -> list[Stage]:
        return [stage for stage in self._stages() if not self.records.done(task.name, task.key, stage)]

    def _stages(self) -> list[Stage]:
        if not self.settings.timed:
            return ["opened"]
        return ["first", "search"] if self.settings.evaluations else ["first"]

    def _late(self) -> bool:
        return time.monotonic() >= self.until

    # ---------------------------------------------------------------- the driver's measurement

    def task(self, job: EvaluationJob) -> Path:
        """The file of a job's task."""
        task: SuiteTask = job.payload
        return task.path

    def opened(self, job: EvaluationJob, bench: Workbench, begun: float) -> OpenSuiteTask:
        """The task on its GPU, captured."""
        return OpenSuiteTask(job.payload, bench, self.settings, begun)

    def measure(self, job: EvaluationJob, opened: OpenSuiteTask, built: Any, stop: Callable[[], bool]) -> None:
        """Measures the missing stages of a task, and keeps a record of each."""
        task: SuiteTask = job.payload
        waiting = time.perf_counter()
        traffic = opened.gpu.traffic  # nothing that a first answer needs
        with self._memory.take(traffic.bytes if traffic is not None else LIMIT_BYTES):
            opened.waited(time.perf_counter() - waiting)
            for stage in self._missing(task) or self._stages():
                self._under_way[task.name] = stage
                self._keep(self._searched(opened, stop) if stage == "search" else opened.first(stage))

    def _searched(self, opened: OpenSuiteTask, stop: Callable[[], bool]) -> Measured | None:
        with (
            tempfile.TemporaryDirectory(prefix="suite-", dir=self.home) as folder,
            Archive(Path(folder)) as archive,
        ):
            return opened.searched(archive, TuningCache(self.home), lambda: stop() or self._late())

    def _done(self, outcome: JobOutcome) -> None:
        """Keeps a record of a task that an error ended; of one that the end of the time cut off there is none."""
        error, task = outcome.error, outcome.job.payload
        if error is None or isinstance(error, DeadlinePassed) or self._late() or not outcome.device:
            return
        stage = self._under_way.get(task.name) or (self._missing(task) or self._stages())[0]
        if isinstance(error, HipwrightError):
            self._keep(failed(task, stage, error.status, error.fault, error.message))
        else:  # a bug of hipwright costs a task, not the run
            self._keep(failed(task, stage, "unscorable", "service", f"{type(error).__name__}: {error}"))

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
