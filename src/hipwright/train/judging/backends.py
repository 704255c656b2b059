"""How a LocalJudge judges: on a GPU, by the stages of score mode with their workers shared by all tasks; or without
one, by the whole evaluator's fast gate on the processor and the static estimate."""

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
from hipwright.evaluation.gpu.timing_queue import TimingQueue
from hipwright.evaluation.program_stages import TimeIt
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
"""Features of an evaluation with the clock "estimate": the reference itself by the static estimate, each operator one
library call, and the least time of its bytes and products; microseconds, geometric means over the AMD targets."""
WAVE = 4  # programs that are ready for each verifier: so many are timed in a row, as each row waits for all verifiers
TIMERS = 8  # processes that hold programs ready to be timed
SPARE = 2  # processes that wait to replace one that breaks
SMALL_BYTES = 4 << 20  # of timed inputs: so little is put into every process that times, more into two of them
PATIENCE_S = 2.0  # a verified program waits no longer for others to be timed with


class CpuJudgeBackend:
    """No GPU: verification on the cpu target, and estimates for the AMD targets."""

    def __init__(self, made: Machine, account: StageTimes, seed: int | None, workers: int, clock: Clock) -> None:
        self.device, self.clock = "", clock
        self._machine, self._account, self._seed = made, account, seed
        self._turns = threading.BoundedSemaphore(workers or len(os.sched_getaffinity(0)))

    @contextmanager
    def open(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """Open a task, and work out what is right."""
        with ExitStack() as stack:
            with self._account.during("opening", what=problem.name):
                opening = self._machine.open_text(problem.name, problem.source, seed=self._seed)
                bench = stack.enter_context(opening)
                if bench.evaluator.oracle.status() is None:
                    bench.evaluator.oracle.prepare(every=False)
            yield bench

    def warm(self) -> None:
        """Every candidate has a process of its own here, which starts with it."""

    def judge(self, problem: TrainingProblem, program: Program, shelf: OpenTaskCache) -> Evaluation:
        """The evaluator's fast gate."""
        with leased(shelf, problem, self._account) as bench:
            with self._account.during("wait: worker"):
                self._turns.acquire()
            try:
                with self._account.during("verify", what=problem.name):
                    found = bench.evaluator.evaluate(program, gate="fast", timed=False)
                    return with_reference(found, bench) if found.passed and self.clock == "estimate" else found
            finally:
                self._turns.release()

    def sharing(self) -> AbstractContextManager[None]:
        """Nothing is timed here."""
        return nullcontext()

    def close(self) -> None:
        """End the processes."""
        self._machine.close()


class TimingWorker:
    """A process that holds programs ready to be timed. waiting: programs that are made ready there, or are about to."""

    def __init__(self, worker: CandidateWorker) -> None:
        self.worker, self.waiting = worker, 0
        self._turn, self._count = threading.Lock(), threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One program at a time is made ready."""
        with self._count:
            self.waiting += 1
        try:
            with self._turn:
                yield
        finally:
            with self._count:
                self.waiting -= 1


class GpuJudgeBackend:
    """One GPU: programs are built at once, verified side by side in shared workers, and timed one by one, alone.

    Programs that passed are loaded and captured beside the verifications, in the few processes that time, one after the
    other in each; those of a task in the same few, which hold its inputs.
    Verified programs are timed in batches, so that the verifiers are not stopped for each: when WAVE for each verifier
    are ready, when nothing else is being verified, or when one has waited for PATIENCE_S. counted: see
    `hipwright.train.judging.counters`; ToolchainError where the profiler is missing.
    """

    def __init__(
        self,
        made: Machine,
        target: str,
        account: StageTimes,
        seed: int | None,
        workers: int,
        limit_s: float | None,
        counted: bool,
    ) -> None:
        if counted:
            find_tool(target)
        self._counted = counted
        self.clock: Clock = "device"
        self._machine, self._target, self._account, self._seed = made, target, account, seed
        self._gpu = made.gpus[target]
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
        self._clock = TimingQueue(WAVE * count, PATIENCE_S)
        self._standby = Standby(self._workers[0].start, SPARE, self._clock.shared)
        self._canary = Canary(self._workers[0].start)
        for worker in self._processes:
            worker.standby, worker.canary = self._standby, self._canary

    @property
    def _processes(self) -> tuple[CandidateWorker, ...]:
        return (*self._workers, *(timer.worker for timer in self._timers))

    def _timer(self, problem: TrainingProblem, bench: Workbench) -> TimingWorker:
        """Of the processes that may time a problem's programs, one that fewest wait for."""
        first = crc32(problem.source.encode()) % len(self._timers)
        some = self._timers[first:] + self._timers[:first]
        small = bench.evaluator.gpus[self._target].timed_bytes <= SMALL_BYTES
        return min(some if small else some[:2], key=lambda timer: timer.waiting)

    @contextmanager
    def open(self, problem: TrainingProblem) -> Iterator[Workbench]:
        """Open a task, work out what is right, and open what its timings stand on."""
        with ExitStack() as stack:
            with self._account.during("opening", what=problem.name):
                opening = self._machine.open_text(problem.name, problem.source, seed=self._seed)
                bench = stack.enter_context(opening)
                stack.callback(self._leave, bench)
                with self._clock.shared():
                    self._canary.open()
                if bench.evaluator.oracle.status() is None:
                    bench.evaluator.oracle.prepare()
                    bench.evaluator.outline()
                    bench.evaluator.gpus[self._target].warm("fast", bench.evaluator.oracle)
            yield bench

    def _leave(self, bench: Workbench) -> None:
        """The shared workers forget a task."""
        for timer in self._timers:
            bench.evaluator.gpus[self._target].leave(timer.worker)
        for worker in self._processes:
            worker.forget(bench.evaluator.oracle.state)

    def warm(self) -> None:
        """Start the processes, all at once, and with the first of them those that stand by."""

        def begin(worker: CandidateWorker) -> None:
            with self._clock.shared(), suppress(HipwrightError):  # the first program meets it again, and tells it
                worker.open()

        with ThreadPoolExecutor(len(self._processes), thread_name_prefix="warm") as pool:
            for started in [pool.submit(begin, worker) for worker in self._processes]:
                started.result()

    def judge(self, problem: TrainingProblem, program: Program, shelf: OpenTaskCache) -> Evaluation:
        """Built while the task is being opened, verified, timed."""
        with self._account.during("build", what=problem.name):
            state = build(self._gpu, self._target, program)
        with leased(shelf, problem, self._account) as bench, ExitStack() as stack:
            with self._clock.verifying():
                state = self._verified(problem, bench, state)
                if state.end is not None:
                    return conclude(state, bench.handle.task.key)
                time_it = self._prepared(problem, bench, state, stack)
            return self._timed(problem, bench, state, time_it)

    def _verified(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState) -> EvaluationState:
        with self._account.during("wait: worker"):
            worker = self._idle.get()
        try:
            with self._clock.shared(), self._account.during("verify", "gpu", what=problem.name):
                timer = self._timer(problem, bench).worker if self._room(bench) else None
                return verify(bench.evaluator, self._target, state, worker, timer)
        finally:
            self._idle.put(worker)

    def _room(self, bench: Workbench) -> bool:
        """Whether a process that times may hold the task's inputs among others'."""
        return bench.evaluator.gpus[self._target].room(len(self._workers))

    def _prepared(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState, stack: ExitStack) -> TimeIt:
        evaluator, timer = bench.evaluator, self._timer(problem, bench)
        if not self._room(bench):
            return unprepared(evaluator, self._target, state, timer.worker)
        with ExitStack() as turn:
            with self._account.during("wait: timer"):
                turn.enter_context(timer.turn())  # outside of the gate: who waits here keeps no timing waiting
            with self._clock.shared(), self._account.during("prepare", "gpu", what=problem.name):
                return prepare(evaluator, self._target, state, timer.worker, stack)

    def _timed(self, problem: TrainingProblem, bench: Workbench, state: EvaluationState, time_it: TimeIt) -> Evaluation:
        """Only what needs the clock has the GPU to itself."""
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
        """`work`, when its turn comes."""

        def accounted() -> T:
            with self._account.during("time", "gpu", what=problem.name):
                return work()

        with self._account.during("wait: timing"):
            return self._clock.run(accounted)

    def sharing(self) -> AbstractContextManager[None]:
        """Between timings."""
        return self._clock.callers_work()

    def close(self) -> None:
        """End the processes, and the thread that times."""
        self._machine.close()
        self._clock.close()
        self._standby.close()
        self._canary.close()
        for worker in self._processes:
            worker.close()


@contextmanager
def leased(shelf: OpenTaskCache, problem: TrainingProblem, account: StageTimes) -> Iterator[Workbench]:
    """The shelf's task; waiting for it is told apart."""
    with ExitStack() as stack:
        with account.during("wait: task"):
            bench = stack.enter_context(shelf.lease(problem))
        yield bench


def with_reference(found: Evaluation, bench: Workbench) -> Evaluation:
    """The evaluation with `REFERENCE_US` and `FLOOR_US` among its features."""
    known = bench.evaluator.reference_estimates()
    asked = [known[name] for name, result in found.targets.items() if result.estimate is not None and name in known]
    if not asked:
        return found
    base = exp(sum(log(one.microseconds) for one in asked) / len(asked))
    fractions = [one.roofline_fraction for one in asked]
    floor = base * exp(sum(map(log, fractions)) / len(asked)) if min(fractions) > 0 else 0.0
    return replace(found, features={**found.features, REFERENCE_US: round(base, 4), FLOOR_US: round(floor, 4)})
