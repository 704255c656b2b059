"""The driver of benchmarks: opens tasks on machines and measures them concurrently, up to a deadline.

`hipwright bench` and `python -m benchmarks suite` differ in what they measure on an open task (`TaskMeasurement`) and
how they store it; opening, scheduling, retries, aborts and deadlines are here and in `hipwright.evaluation.pool`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import WorkerError
from hipwright.evaluation.figures import BASELINES
from hipwright.evaluation.pool import Dispatcher, JobOutcome
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import Listener, silent
from hipwright.machine import Machine, TaskText, Workbench, machine
from hipwright.sandbox import MakeZygote

GPU_WORKERS = 4  # tasks at a time on one GPU, if there are four processors for each, as opening one takes seconds
TOGETHER = 2  # workers that share a process
HANG_S = 600.0  # an evaluation takes less, as each of its steps has a limit
LEAVE_S = 10.0  # after the deadline, for ending what was aborted


class TaskMeasurement(Protocol):
    """What a benchmark measures on its tasks. One measurement serves all workers, from several threads."""

    def task(self, job: EvaluationJob) -> Path | TaskText:
        """The file of a job's task, or its text."""
        ...

    def opened(self, job: EvaluationJob, bench: Workbench, begun: float) -> Any:
        """The state that `measure` needs of a newly opened task. begun: when its opening began (time.perf_counter)."""
        ...

    def measure(self, job: EvaluationJob, opened: Any, built: Any, stop: Callable[[], bool]) -> Any:
        """The job's value. stop: whether this worker was aborted. Raises the machine's faults, which are retried."""
        ...


class DeadlinePassed(Exception):
    """The time is over, or too short for another task: the job was not started."""


class BenchDeadline:
    """The end of a benchmark's time. at: time.monotonic, or None; guess_s: a task's length before any was measured."""

    def __init__(self, at: float | None, guess_s: float = 0.0) -> None:
        self.at = at
        self._guess_s = guess_s
        self._spent: list[float] = []

    def passed(self) -> bool:
        """Whether the time is over."""
        return self.at is not None and time.monotonic() >= self.at

    def check(self) -> None:
        """Raises DeadlinePassed unless a task of median length still fits."""
        expected = median(self._spent) if self._spent else self._guess_s
        if self.at is not None and time.monotonic() + expected >= self.at:
            raise DeadlinePassed

    def spent(self, seconds: float) -> None:
        """Records the length of one task."""
        self._spent.append(seconds)


class BenchWorker:
    """A device of the dispatcher: one open task at a time. Says in which order; subclasses open, measure and close.

    keep_open: until a job of another task comes; else each job opens its task again, so that no device memory stays
    allocated.
    """

    def __init__(self, name: str, *, deadline: BenchDeadline | None = None, keep_open: bool = True) -> None:
        self.name = name
        self.idle = threading.Event()
        self.idle.set()
        self._keep_open, self._deadline = keep_open, deadline or BenchDeadline(None)
        self._group: str | None = None
        self._begun = 0.0
        self._stopping = threading.Event()
        self._turn = threading.Lock()  # held while a job is prepared and evaluated
        self._left: JobsLeft | None = None

    def share(self, left: JobsLeft) -> None:
        """Closes a task whose last job has ended: an open one keeps memory of the device that others wait for."""
        self._left = left

    def prepare(self, job: EvaluationJob) -> None:
        """Opens the job's task, unless it is open. Raises what opening raises, and DeadlinePassed."""
        self._turn.acquire()
        self._stopping.clear()
        self.idle.clear()
        self._begun = time.monotonic()
        try:
            self._deadline.check()
            if self._group is None or self._group != job.group:
                self.open_task(job)
        except BaseException:
            self.idle.set()
            self._turn.release()
            raise

    def evaluate(self, job: EvaluationJob, built: Any) -> Any:
        """The job's value. Raises WorkerError where the worker was aborted: what its processes' end looked like blames
        nobody.
        """
        try:
            value = self.value(job, built)
            if self._stopping.is_set():
                raise WorkerError(f"{self.name} was stopped while it ran {job.key}")
            return value
        finally:
            if not self._keep_open:
                self.close()
            self._deadline.spent(time.monotonic() - self._begun)
            self.idle.set()
            self._turn.release()
            if self._left is not None:
                self._left.ended(job)

    def close_ended(self) -> None:
        """Closes a task of which no job is left, unless one is running."""
        if self._turn.acquire(blocking=False):
            try:
                if self._left is not None and self._group is not None and not self._left.count(self._group):
                    self.close()
            finally:
                self._turn.release()

    def open_task(self, job: EvaluationJob) -> None:
        """Opens the job's task in place of the open one, and sets `_group`."""
        raise NotImplementedError

    def value(self, job: EvaluationJob, built: Any) -> Any:
        """The job's value on the open task."""
        raise NotImplementedError

    def abort(self) -> None:
        """Ends what runs, so that its calls raise; it starts again with the next job."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the task."""
        raise NotImplementedError


class TaskWorker(BenchWorker):
    """A worker on a machine of this process."""

    def __init__(
        self, name: str, machine: Machine, measurement: TaskMeasurement, *, seed: int | None = None, **how: Any
    ) -> None:
        super().__init__(name, **how)
        self.machine, self._measurement, self._seed = machine, measurement, seed
        self._stack = ExitStack()
        self._opened: Any = None

    def open_task(self, job: EvaluationJob) -> None:
        """As of BenchWorker."""
        self.close()
        begun = time.perf_counter()
        opening = self.machine.open(self._measurement.task(job), seed=self._seed, listener=silent)
        bench = self._stack.enter_context(opening)
        self._opened = self._measurement.opened(job, bench, begun)
        self._group = job.group

    def value(self, job: EvaluationJob, built: Any) -> Any:
        """As of BenchWorker."""
        return self._measurement.measure(job, self._opened, built, self._stopping.is_set)

    def abort(self) -> None:
        """Ends the machine's processes."""
        self._stopping.set()
        self.machine.close()

    def close(self) -> None:
        """Closes the task."""
        self._group, self._opened = None, None
        self._stack.close()
        self._stack = ExitStack()


class JobsLeft:
    """How many jobs of each task have not ended. Safe to use from several threads."""

    def __init__(self, workers: Sequence[BenchWorker], jobs: Sequence[EvaluationJob]) -> None:
        self._workers, self._lock = workers, threading.Lock()
        self._counts = Counter(job.group for job in jobs)
        self._ended: set[str] = set()

    def count(self, group: str) -> int:
        """The jobs of a task that have not ended."""
        with self._lock:
            return self._counts[group]

    def ended(self, job: EvaluationJob) -> None:
        """Takes a job off, once, however often it is tried; the last one of a task closes it everywhere."""
        with self._lock:
            if job.key not in self._ended:
                self._ended.add(job.key)
                self._counts[job.group] -= 1
            last = not self._counts[job.group]
        for worker in self._workers if last else ():
            worker.close_ended()


@dataclass(frozen=True)
class WorkerPlan:
    """Which machines to start. gpus: one machine each; without any, one for each worker.

    workers: on each GPU, or in all; None for as many as the processors allow. jobs: how many there are.
    baseline_s, imported, compilers, zygotes: as of `machine`. baselines: what programs are timed against.
    processes: as of BenchRequest.
    """

    targets: tuple[str, ...]
    gpus: Sequence[GpuInfo] = ()
    workers: int | None = None
    jobs: int = 1
    unsafe: bool = False
    baseline_s: float = 0.0
    baselines: tuple[str, ...] = BASELINES
    imported: tuple[str, ...] = ()
    compilers: int = 0
    processes: int | None = None
    zygotes: MakeZygote | None = None

    @property
    def each(self) -> int:
        """Workers on each GPU, or in all where none is used."""
        cores = os.cpu_count() or 2
        if self.gpus:
            return self.workers or max(2, min(GPU_WORKERS, cores // (4 * len(self.gpus))))
        return min(self.workers or max(1, cores // 2), self.jobs)

    @property
    def shares(self) -> list[int]:
        """How many workers each process of a GPU has, or each of all where no GPU is used."""
        count = min(self.each, self.processes or -(-self.each // TOGETHER))
        return [self.each // count + (number < self.each % count) for number in range(count)]

    @property
    def alone(self) -> bool:
        """Whether one process, which may be this one, does everything."""
        return len(self.shares) == 1 and len(self.gpus) < 2


@contextmanager
def open_workers(
    plan: WorkerPlan, measurement: TaskMeasurement, *, seed: int | None = None
) -> Iterator[list[TaskWorker]]:
    """Workers on machines of their own.

    Those of one GPU share its processes and its timing lock: while one times, the others open tasks and compile.
    """
    options: dict[str, Any] = {"unsafe": plan.unsafe, "imported": plan.imported, "zygotes": plan.zygotes}
    with ExitStack() as stack:
        workers: list[TaskWorker] = []
        for gpu in plan.gpus:
            opening = machine(
                plan.targets, gpu=gpu.index, baseline_s=plan.baseline_s, compilers=plan.compilers, **options
            )
            made = stack.enter_context(opening)
            for context in made.gpus.values():
                context.baselines = plan.baselines
            names = [f"{gpu.kind} {gpu.index} worker {number}" for number in range(plan.each)]
            workers += [TaskWorker(name, made, measurement, seed=seed) for name in names]
        for number in range(0 if plan.gpus else plan.each):
            made = stack.enter_context(machine(plan.targets, **options))
            workers.append(TaskWorker(f"cpu worker {number}", made, measurement, seed=seed))
        for worker in workers:
            stack.callback(worker.close)
        yield workers


def _no_build(job: EvaluationJob) -> None:
    """The build of jobs that need none: None."""


def run_jobs(
    workers: Sequence[BenchWorker],
    jobs: Sequence[EvaluationJob],
    *,
    on_done: Callable[[JobOutcome], None],
    build: Callable[[EvaluationJob], Any] = _no_build,
    build_workers: int = 1,
    attempts: int = 3,
    hang_s: float = HANG_S,
    deadline: BenchDeadline | None = None,
    listener: Listener | None = None,
) -> None:
    """Measures every job, in order as far as workers allow. on_done: called in this thread as each ends.

    After the deadline the machines are closed, and jobs that have not ended have no outcome. On Ctrl-C finished jobs
    are delivered, the workers are stopped and KeyboardInterrupt is raised.
    """
    dispatcher = Dispatcher(
        workers, build, build_workers=build_workers, attempts=attempts, hang_s=hang_s, listener=listener
    )
    left = JobsLeft(workers, jobs)
    for worker in workers:
        worker.share(left)
    until = deadline.at if deadline is not None else None
    dispatcher.run(jobs, on_done=on_done, until=until)
    if deadline is not None and deadline.passed():
        leave = time.monotonic() + LEAVE_S
        for worker in workers:
            worker.idle.wait(max(0.0, leave - time.monotonic()))
