"""The backends of LocalJudge: on a GPU the stages of score mode, with workers that all tasks share; without a GPU the
evaluator's fast gate on the processor and the static estimate."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from math import exp, log
from typing import TypeVar
from zlib import crc32

from msgspec.structs import replace

from hipwright.device import topology
from hipwright.errors import HipwrightError
from hipwright.evaluation.gpu.task import TimeIt
from hipwright.evaluation.gpu.timing_queue import TimingQueue
from hipwright.evaluation.score import WORKERS, build, measure, prepare, unprepared, verify
from hipwright.evaluation.stages import EvaluationState, conclude
from hipwright.machine import Machine, Workbench
from hipwright.measure.profiling.vendors import find_tool
from hipwright.records import Evaluation, Program
from hipwright.train.judging.counters import counters
from hipwright.train.judging.open_tasks import OpenTaskCache
from hipwright.train.judging.stage_times import StageTimes
from hipwright.train.records import Clock, TrainingProblem
from hipwright.verify.canary import Canary
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.standby import Standby

T = TypeVar("T")
REFERENCE_US, FLOOR_US = "reference_us", "floor_us"
"""Features of an evaluation with the clock "estimate": the static estimate of the reference with a library call for
each operator, and its roofline; microseconds, geometric means over the AMD targets."""
BATCH_PER_VERIFIER = 4
"""Prepared programs for each verifier that start a batch of timings, during which all verifiers wait."""
TIMERS = 8
"""Processes that hold programs prepared for timing."""
STANDBY_PROCESSES = 2
"""Started processes that replace a broken one."""
SMALL_BYTES = 4 << 20
"""Timed inputs of at most so many bytes are placed in every timing process, larger ones in two of them."""
MAX_WAIT_S = 2.0
"""A prepared program waits at most so long for a batch of timings."""


class CpuJudgeBackend:
    """Judges without a GPU: verification on the cpu target, and estimates for the AMD targets."""

    def __init__(self, machine: Machine, times: StageTimes, seed: int | None, workers: int, clock: Clock) -> None:
        self.device, self.clock = "", clock
        self._machine, self._times, self._seed = machine, times, seed
        self._slots = threading.BoundedSemaphore(workers or len(os.sched_getaffinity(0)))

    @contextmanager
    def open(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """Opens a task and computes its expectations."""
        with ExitStack() as stack:
            with self._times.during("opening", what=problem.name):
                opening = self._machine.open_text(problem.name, problem.source, seed=self._seed)
                bench = stack.enter_context(opening)
                if bench.evaluator.oracle.status() is None:
                    bench.evaluator.oracle.prepare(every=False)
            yield bench

    def warm(self) -> None:
        """Does nothing: every candidate starts a process of its own."""

    def judge(self, problem: TrainingProblem, program: Program, tasks: OpenTaskCache) -> Evaluation:
        """The evaluation by the fast gate, with the reference's estimate where the clock is "estimate"."""
        with leased(tasks, problem, self._times) as bench:
            with self._times.during("wait: worker"):
                self._slots.acquire()
            try:
                with self._times.during("verify", what=problem.name):
                    found = bench.evaluator.evaluate(program, gate="fast", timed=False)
                    return with_reference(found, bench) if found.passed and self.clock == "estimate" else found
            finally:
                self._slots.release()

    def timing_paused(self) -> AbstractContextManager[None]:
        """A block without an effect, since nothing is timed."""
        return nullcontext()

    def close(self) -> None:
        """Ends the processes."""
        self._machine.close()


class TimingWorker:
    """A process that holds programs prepared for timing. waiting: programs being prepared there or waiting for it."""

    def __init__(self, worker: CandidateWorker) -> None:
        self.worker, self.waiting = worker, 0
        self._turn, self._count = threading.Lock(), threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A block in which one program at a time is prepared."""
        with self._count:
            self.waiting += 1
        try:
            with self._turn:
                yield
        finally:
            with self._count:
                self.waiting -= 1


class GpuJudgeBackend:
    """Judges on one GPU: programs are built and verified concurrently in shared workers, and timed one at a time.

    Programs that passed are loaded and captured during other verifications, in the timing processes that hold their
    task's inputs, one at a time in each. Timing needs the GPU alone, so prepared programs are timed in batches: when
    there are BATCH_PER_VERIFIER for each verifier, when nothing else is being verified, or when one has waited for
    MAX_WAIT_S. counted: read hardware counters (counters.py); raises ToolchainError where the profiler is missing.
    """

    def __init__(
        self,
        machine: Machine,
        target: str,
        times: StageTimes,
        seed: int | None,
        workers: int,
        limit_s: float | None,
        counted: bool,
    ) -> None:
        if counted:
            find_tool(target)
        self._counted = counted
        self.clock: Clock = "device"
        self._machine, self._target, self._times, self._seed = machine, target, times, seed
        self._gpu = machine.gpus[target]
        names = [one.name for one in topology.find(self._gpu.target.name) if one.index == self._gpu.index]
        self.device = names[0] if names else f"{self._gpu.target.name} {self._gpu.architecture}"
        count = workers or max(1, min(WORKERS, len(os.sched_getaffinity(0)) - 4))
        self._workers = [self._gpu.candidates() for _ in range(count)]
        self._timers = [TimingWorker(self._gpu.candidates()) for _ in range(min(TIMERS, count))]
        for worker in self._processes if limit_s else ():
            worker.call_limit_s = float(limit_s or 0)
        self._idle: queue.SimpleQueue[CandidateWorker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._timings = TimingQueue(BATCH_PER_VERIFIER * count, MAX_WAIT_S)
        self._standby = Standby(self._workers[0].start, STANDBY_PROCESSES, self._timings.shared)
        self._canary = Canary(self._workers[0].start)
        for worker in self._processes:
            worker.standby, worker.canary = self._standby, self._canary

    @property
    def _processes(self) -> tuple[CandidateWorker, ...]:
        return (*self._workers, *(timer.worker for timer in self._timers))

    def _choose_timer(self, problem: TrainingProblem, bench: Workbench) -> TimingWorker:
        """The timing process with the fewest waiting programs, of those that may hold the problem's inputs."""
        first = crc32(problem.source.encode()) % len(self._timers)
        some = self._timers[first:] + self._timers[:first]
        small = bench.evaluator.gpus[self._target].timed_bytes <= SMALL_BYTES
        return min(some if small else some[:2], key=lambda timer: timer.waiting)

    @contextmanager
    def open(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """Opens a task, and computes its expectations and the eager baseline's program."""
        with ExitStack() as stack:
            with self._times.during("opening", what=problem.name):
                opening = self._machine.open_text(problem.name, problem.source, seed=self._seed)
                bench = stack.enter_context(opening)
                stack.callback(self._forget_task, bench)
                with self._timings.shared():
                    self._canary.open()
                if bench.evaluator.oracle.status() is None:
                    bench.evaluator.oracle.prepare()
                    bench.evaluator.outline()
                    bench.evaluator.gpus[self._target].warm("fast", bench.evaluator.oracle)
            yield bench

    def _forget_task(self, bench: Workbench) -> None:
        """Removes a task's inputs and state from the shared workers."""
        for timer in self._timers:
            bench.evaluator.gpus[self._target].release_timings(timer.worker)
        for worker in self._processes:
            worker.forget(bench.evaluator.oracle.state)

    def warm(self) -> None:
        """Starts all processes concurrently, those on standby too."""

        def begin(worker: CandidateWorker) -> None:
            with self._timings.shared(), suppress(HipwrightError):  # the first program raises it again
                worker.open()

        with ThreadPoolExecutor(len(self._processes), thread_name_prefix="warm") as pool:
            for started in [pool.submit(begin, worker) for worker in self._processes]:
                started.result()

    def judge(self, problem: TrainingProblem, program: Program, tasks: OpenTaskCache) -> Evaluation:
        """The evaluation of a program: built while its task is being opened, then verified and timed."""
        with self._times.during("build", what=problem.name):
            state = build(self._gpu, self._target, program)
        with leased(tasks, problem, self._times) as bench, ExitStack() as stack:
            with self._timings.verifying():
                state = self._verified(problem, bench, state)
                if state.end is not None:
                    return conclude(state, bench.handle.task.key)
                time_it = self._prepared(problem, bench, state, stack)
            return self._timed(problem, bench, state, time_it)

    def _verified(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState) -> EvaluationState:
        with self._times.during("wait: worker"):
            worker = self._idle.get()
        try:
            with self._timings.shared(), self._times.during("verify", "gpu", what=problem.name):
                timer = self._choose_timer(problem, bench).worker if self._fits_timers(bench) else None
                return verify(bench.evaluator, self._target, state, worker, timer)
        finally:
            self._idle.put(worker)

    def _fits_timers(self, bench: Workbench) -> bool:
        """Whether the timing processes have memory for the task's inputs."""
        return bench.evaluator.gpus[self._target].fits_workers(len(self._workers))

    def _prepared(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState, stack: ExitStack) -> TimeIt:
        evaluator, timer = bench.evaluator, self._choose_timer(problem, bench)
        if not self._fits_timers(bench):
            return unprepared(evaluator, self._target, state, timer.worker)
        with ExitStack() as turn:
            with self._times.during("wait: timer"):
                turn.enter_context(timer.turn())  # not shared: waiting here must not delay a timing
            with self._timings.shared(), self._times.during("prepare", "gpu", what=problem.name):
                return prepare(evaluator, self._target, state, timer.worker, stack)

    def _timed(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState, time_it: TimeIt) -> Evaluation:
        """The timed evaluation. Only the measurement itself runs alone on the GPU."""
        state = measure(bench.evaluator, self._target, state, time_it, partial(self._alone, problem))
        found = conclude(state, bench.handle.task.key)
        if not (self._counted and found.passed):
            return found
        built, gpu = state.found.builds.gpu[self._target], self._gpu

        def counted() -> dict[str, float]:
            return counters(
                bench, self._target, gpu.index, state.program, built, gpu.cache, unsafe=self._machine.unsafe
            )

        return replace(found, features={**found.features, **self._alone(problem, counted)})

    def _alone(self, problem: TrainingProblem, work: Callable[[], T]) -> T:
        """The result of `work`, which runs in the timing queue, alone on the GPU."""

        def accounted() -> T:
            with self._times.during("time", "gpu", what=problem.name):
                return work()

        with self._times.during("wait: timing"):
            return self._timings.run(accounted)

    def timing_paused(self) -> AbstractContextManager[None]:
        """A block between timings."""
        return self._timings.callers_work()

    def close(self) -> None:
        """Ends the processes and the timing thread."""
        self._machine.close()
        self._timings.close()
        self._standby.close()
        self._canary.close()
        for worker in self._processes:
            worker.close()


@contextmanager
def leased(tasks: OpenTaskCache, problem: TrainingProblem, times: StageTimes) -> Iterator[Workbench]:
    """The problem's task, leased from the cache; waiting for it is the stage "wait: task"."""
    with ExitStack() as stack:
        with times.during("wait: task"):
            bench = stack.enter_context(tasks.lease(problem))
        yield bench


def with_reference(found: Evaluation, bench: Workbench) -> Evaluation:
    """The evaluation with `REFERENCE_US` and `FLOOR_US` among its features."""
    known = bench.evaluator.reference_estimates()
    timed = [known[name] for name, result in found.targets.items() if result.estimate is not None and name in known]
    if not timed:
        return found
    base = exp(sum(log(one.microseconds) for one in timed) / len(timed))
    fractions = [one.roofline_fraction for one in timed]
    floor = base * exp(sum(map(log, fractions)) / len(timed)) if min(fractions) > 0 else 0.0
    return replace(found, features={**found.features, REFERENCE_US: round(base, 4), FLOOR_US: round(floor, 4)})
