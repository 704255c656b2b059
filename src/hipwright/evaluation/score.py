"""Score mode: many programs of one task at once, for learning (docs/score.md).

Programs pass the fast gate instead of the full one, and a short paired timing against eager instead of a long one
against every baseline. All programs of a batch are compiled concurrently. Each built program is verified in a worker of
its own, several at a time, and is loaded and captured there if it passes. Then the programs are timed one after the
other, alone on the GPU. The steps are functions (`build`, `verify`, `prepare`, `measure`), which
`hipwright.train.judging` uses for many tasks at once. Of the programs that score mode passes, all but a few in a
hundred also pass `evaluate` with the full gate (measured; see the page).
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from types import TracebackType
from typing import Self, TypeVar

from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluation.context import EvaluationContext
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.task import GpuTask, TimeIt
from hipwright.evaluation.gpu.timing_queue import TimingQueue
from hipwright.evaluation.pipeline import Evaluator
from hipwright.evaluation.program_stages import (
    PARSE,
    BuildPlan,
    assess_stage,
    build_stage,
    time_stage,
    trace_stage,
    verify_gpu_stage,
)
from hipwright.evaluation.results import Findings
from hipwright.evaluation.stages import EvaluationStage, EvaluationState, Run, advance, conclude, in_place
from hipwright.measure.paired_timing import TimingResult
from hipwright.program import Parsed
from hipwright.records import Evaluation, Program
from hipwright.targets import TARGETS
from hipwright.verify.canary import Canary
from hipwright.verify.gpu.client import CandidateWorker

T = TypeVar("T")
WORKERS = 10
"""The most candidate processes that verify at once, if there are processors for them."""
PATIENCE_S = 0.2  # the longest that a program that is ready waits for others to be timed with
# All programs of a batch start at once in one interpreter. The lock limits how many parse at a time, so that the first
# compile starts after one parse and not after hundreds; two, as a long text may take long.
_PARSING = threading.BoundedSemaphore(2)


def build(gpu: GpuContext, target: str, program: Program) -> EvaluationState:
    """Parses and compiles a program, on the CPU; needs no task. target: the GPU's name among an evaluator's."""
    state = advance(EvaluationState(program, Findings((target,))), _PARSE_PROGRAM, run=_parsing_in_turn)
    return advance(state, build_stage(BuildPlan(gpu.cache, gpus={target: gpu})))


def verify(
    context: EvaluationContext,
    target: str,
    state: EvaluationState,
    worker: CandidateWorker,
    timer: CandidateWorker | None = None,
) -> EvaluationState:
    """Verifies a built program by the fast gate and traces it, in `worker`.

    timer: holds the timed inputs, at which a program is verified that supports no smaller shape. Without one, or where
    those inputs are too large, such a program is unscorable.
    """
    checked = verify_gpu_stage(context, target, context.oracle, "fast", worker, timer)
    return advance(state, checked, trace_stage(context, context.oracle, worker))


def prepare(
    context: EvaluationContext, target: str, state: EvaluationState, worker: CandidateWorker, stack: ExitStack
) -> TimeIt:
    """Loads and captures a verified program in `worker`, until the stack closes; returns the function that times it.

    An error while loading is raised when the program is timed.
    """
    try:
        gpu, build = context.gpus[target], state.found.builds.gpu[target]
        known = state.found.verified_at(target, gpu.workload)
        return stack.enter_context(gpu.prepared(state.program, build, worker, known=known))
    except HipwrightError as error:
        met = error

    def refused() -> TimingResult:
        raise met

    return refused


def unprepared(
    context: EvaluationContext, target: str, state: EvaluationState, worker: CandidateWorker | None = None
) -> TimeIt:
    """A function that loads and times a verified program, both alone on the GPU.

    For inputs of which the device can hold only one program's. worker: another process than the task's own.
    """
    gpu, build = context.gpus[target], state.found.builds.gpu[target]
    known = state.found.verified_at(target, gpu.workload)
    return lambda: gpu.time(state.program, build, gate="fast", again=False, known=known, worker=worker)


def measure(
    context: EvaluationContext,
    target: str,
    state: EvaluationState,
    time_it: TimeIt | None,
    run: Run[TimingResult] = in_place,
) -> EvaluationState:
    """Times and assesses a verified program.

    time_it: None leaves out the timing. run: runs the work that needs the GPU for itself, and nothing else.
    """
    if time_it is not None:
        timer = time_it
        state = advance(state, time_stage(context, target, lambda _: timer()), run=run)
    return advance(state, assess_stage(context))


def _parse_program(state: EvaluationState) -> Parsed:
    if state.program.form != "program":
        raise BadInput("score mode takes programs only", hint="`hipwright eval` judges ModelNew files")
    return PARSE.work(state)


_PARSE_PROGRAM: EvaluationStage[Parsed] = EvaluationStage("parse", _parse_program, PARSE.keep)


def _parsing_in_turn(work: Callable[[], T]) -> T:
    with _PARSING:
        return work()


class BatchScorer:
    """Scores programs of one evaluator's task on one of its GPUs. A context manager.

    workers: candidate processes; 0 for as many as the machine has resources for. Raises BadInput where the evaluator
    has no such GPU.
    """

    def __init__(self, evaluator: Evaluator, target: str = "", *, workers: int = 0) -> None:
        self._name = target or next(iter(evaluator.gpus), "")
        if self._name not in evaluator.gpus:
            raise BadInput(
                "score mode needs a GPU target", hint=f"{TARGETS.gpu_choices('--target {}')}, where there is a GPU"
            )
        self._evaluator = evaluator
        self._gpu: GpuTask = evaluator.gpus[self._name]
        count = workers or max(1, min(WORKERS, (os.cpu_count() or 2) - 4))
        self._idle: queue.SimpleQueue[CandidateWorker] = queue.SimpleQueue()
        self._workers = [self._gpu.gpu.candidates() for _ in range(count)]
        self._canary = Canary(self._gpu.gpu.candidates().start)
        for worker in self._workers:
            worker.canary = self._canary
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._canary.close()
        for worker in self._workers:
            worker.close()

    def warm(self) -> None:
        """Starts the workers and computes the expectations, so that the first batch need not wait for them."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            started = [pool.submit(self._canary.open), *(pool.submit(worker.open) for worker in self._workers)]
            self._evaluator.oracle.prepare(every=True)
            for future in started:
                future.result()

    def score(self, programs: Sequence[Program], *, timed: bool = True) -> list[Evaluation]:
        """An evaluation for each program, in order. A fault of the machine is reported as such, never as a wrong
        kernel.

        A program proceeds as soon as it is built: a slow compile delays no other program.
        """
        count, gpu = len(self._workers), self._gpu.gpu
        together = timed and self._gpu.fits_workers(count)
        clock = TimingQueue(count, PATIENCE_S)
        with closing(clock), ThreadPoolExecutor(2 * count) as builders, ThreadPoolExecutor(count) as pool:
            waiting = {builders.submit(build, gpu, self._name, program): n for n, program in enumerate(programs)}
            started = {
                waiting[built]: pool.submit(self._after_build, clock, built.result(), timed, together)
                for built in as_completed(waiting)
            }
            task = self._evaluator.handle.task.key
            return [conclude(started[n].result(), task) for n in range(len(programs))]

    def _after_build(self, clock: TimingQueue, state: EvaluationState, timed: bool, together: bool) -> EvaluationState:
        """Verifies and prepares a program in one worker, then times it there when its turn comes."""
        context, target = self._evaluator, self._name
        with self._worker() as worker, ExitStack() as stack:
            with clock.verifying():
                with clock.shared():
                    state = verify(context, target, state, worker, worker if together else None)
                if state.end is not None:
                    return state
                if not timed:
                    return measure(context, target, state, None)
                if together:
                    with clock.shared():  # a waiting timing goes first
                        time_it = prepare(context, target, state, worker, stack)
                else:
                    time_it = unprepared(context, target, state)
            return measure(context, target, state, time_it, clock.run)

    @contextmanager
    def _worker(self) -> Iterator[CandidateWorker]:
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)
