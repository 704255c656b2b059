"""Score mode: many programs of one task at once, for learning (docs/score.md).

The fast gate instead of the full one, and a short paired timing against eager instead of a long one against every
baseline. Programs are compiled side by side, all of them from the start. As they are built they are verified side by
side, each in a worker of its own, where those that pass are loaded and captured; then these are timed one after the
other, alone on the GPU. Each step is a function here (`build`, `check`, `ready`, `measure`), which
train/judging/lanes.py uses for many tasks at once. The verdicts are the evaluator's: what score mode passes, `evaluate`
with the full gate passes too in all but a few of a hundred cases (measured; see the page).
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluation.gpu import GpuContext
from hipwright.evaluation.gpu_task import GpuTask, TimeIt
from hipwright.evaluation.pipeline import Evaluator
from hipwright.evaluation.results import Findings, build_verdict, rejected
from hipwright.evaluation.turns import Turns
from hipwright.measure.bench import BenchResult
from hipwright.program import Parsed, parse
from hipwright.records import Evaluation, Program, Verdict
from hipwright.verify.canary import Canary
from hipwright.verify.gpu.client import GpuCandidates
from hipwright.verify.ledger import UNCLAIMED

WORKERS = 10
"""Candidate processes that verify at once, if there are processors for them."""
PATIENCE_S = 0.2  # a program that is ready waits no longer for others to be timed with
# All programs of a batch begin at once, and one interpreter parses them all: in turns, so that the first compile starts
# after one parse and not after hundreds. Two, as a text may take long
_PARSING = threading.BoundedSemaphore(2)


@dataclass(frozen=True)
class BuiltProgram:
    """A program and what compiling it came to: the parsed plan, or why there is none."""

    program: Program
    found: Findings
    outcome: Parsed | Verdict
    seconds: float


@dataclass(frozen=True)
class GatedProgram:
    """A program that passed the fast gate and waits for its timing."""

    program: Program
    found: Findings
    trace: dict[str, Any]
    seconds: float


def build(gpu: GpuContext, target: str, program: Program) -> BuiltProgram:
    """Compile a program, on the processor alone: needs no task. target: the GPU's name among an evaluator's."""
    start, found = time.perf_counter(), Findings((target,))

    def compiled() -> Parsed | Verdict:
        if program.form != "program":
            raise BadInput("score mode takes programs only", hint="`hipwright eval` judges ModelNew files")
        with _PARSING:
            parsed = parse(program.text)
        found.gpu[target] = made = gpu.build(parsed.hip, parsed.defines(program.knobs))
        return parsed if made.ok else build_verdict(made)

    try:
        outcome = compiled()
    except HipwrightError as error:
        outcome = error.verdict()
    return BuiltProgram(program, found, outcome, time.perf_counter() - start)


def check(
    evaluator: Evaluator, target: str, built: BuiltProgram, worker: GpuCandidates, timer: GpuCandidates | None = None
) -> GatedProgram | Evaluation:
    """Verify a built program behind the fast gate, in `worker`. An Evaluation where that is the end of it.

    timer: holds the timed inputs, on which a program is verified that claims no smaller shape; without one, or where
    they are too large for that, such a program is unscorable.
    """
    start, program, found, parsed = time.perf_counter(), built.program, built.found, built.outcome
    task, gpu = evaluator.handle.task.key, evaluator.gpus[target]
    if isinstance(parsed, Verdict):
        return replace(rejected(task, program, parsed, found), seconds=round(built.seconds, 4))

    def checked() -> dict[str, Any] | Evaluation:
        made, oracle = found.gpu[target], evaluator.oracle
        verdict = gpu.verify(parsed, program, made, oracle, gate="fast", worker=worker)
        if verdict.evidence.get(UNCLAIMED) and timer is not None:
            verdict = gpu.verify_own(parsed, program, made, oracle, timer)
        if not verdict.passed:
            return rejected(task, program, verdict, found, where=target)
        found.verdicts[target] = verdict
        return gpu.trace(program, evaluator.oracle, evaluator.outline(), worker)

    outcome = _guarded(task, program, found, checked)
    spent = built.seconds + time.perf_counter() - start
    if isinstance(outcome, Evaluation):
        return replace(outcome, seconds=round(spent, 4))
    return GatedProgram(program, found, outcome, spent)


def ready(evaluator: Evaluator, target: str, checked: GatedProgram, worker: GpuCandidates, stack: ExitStack) -> TimeIt:
    """Load and capture a checked program in `worker` -> what times it; the stack gives it back. Whatever goes wrong
    on the way is told when it is timed."""
    made, outline = checked.found.gpu[target], evaluator.outline()
    try:
        gpu = evaluator.gpus[target]
        known = checked.found.judged_at(target, gpu.workload)
        return stack.enter_context(gpu.prepared(checked.program, made, outline, worker, known=known))
    except HipwrightError as error:
        told = error

    def refused() -> BenchResult:
        raise told

    return refused


def unprepared(evaluator: Evaluator, target: str, checked: GatedProgram, worker: GpuCandidates | None = None) -> TimeIt:
    """What loads and times a checked program, all of it alone on the GPU: where inputs are too large to hold for more
    than one program. worker: another process than the task's own."""
    gpu, made, outline = evaluator.gpus[target], checked.found.gpu[target], evaluator.outline()
    known = checked.found.judged_at(target, gpu.workload)
    return lambda: gpu.time(
        checked.program, made, gate="fast", outline=outline, again=False, known=known, worker=worker
    )


def measure(
    evaluator: Evaluator,
    target: str,
    checked: GatedProgram,
    time_it: TimeIt | None,
    in_turn: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> Evaluation:
    """The evaluation of a checked program; time_it: None leaves the clock out. in_turn: runs what needs the GPU for
    itself, and nothing else; how long that waits is not counted."""
    start, program, found, waited = time.perf_counter(), checked.program, checked.found, 0.0
    task = evaluator.handle.task.key

    def measured() -> Evaluation:
        nonlocal waited
        if time_it is not None:
            asked = time.perf_counter()
            result, took = in_turn(lambda: _clocked(time_it))
            waited = time.perf_counter() - asked - took
            found.timed(target, result, evaluator.gpus[target].workload)
            if result.verdict is not None:
                return rejected(task, program, result.verdict, found, where=target)
        return evaluator.finish(program, checked.trace, found)

    done: Evaluation = _guarded(task, program, found, measured)
    return replace(done, seconds=round(checked.seconds + time.perf_counter() - start - waited, 4))


def _clocked(time_it: TimeIt) -> tuple[BenchResult, float]:
    start = time.perf_counter()
    return time_it(), time.perf_counter() - start


def _guarded(task: str, program: Program, found: Findings, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except HipwrightError as error:
        return rejected(task, program, error.verdict(), found)


class BatchScorer:
    """Scores programs of one evaluator's task on one of its GPUs. A context manager.

    workers: candidate processes; 0 for what the machine has room for. BadInput where the evaluator has no such GPU.
    """

    def __init__(self, evaluator: Evaluator, target: str = "", *, workers: int = 0) -> None:
        self._name = target or next(iter(evaluator.gpus), "")
        if self._name not in evaluator.gpus:
            raise BadInput("score mode needs a GPU target", hint="--target cuda or --target rocm, where there is a GPU")
        self._evaluator = evaluator
        self._gpu: GpuTask = evaluator.gpus[self._name]
        count = workers or max(1, min(WORKERS, (os.cpu_count() or 2) - 4))
        self._idle: queue.SimpleQueue[GpuCandidates] = queue.SimpleQueue()
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
        """Start the workers and work out what is right, so that the first batch does not wait for it."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            started = [pool.submit(self._canary.open), *(pool.submit(worker.open) for worker in self._workers)]
            self._evaluator.oracle.prepare(every=True)
            for future in started:
                future.result()

    def score(self, programs: Sequence[Program], *, timed: bool = True) -> list[Evaluation]:
        """An evaluation for each, in order. A fault of the machine is told in it, never as a wrong kernel.

        Programs go on as they are built: one that takes the compiler seconds keeps nobody waiting.
        """
        count, gpu = len(self._workers), self._gpu.gpu
        together = timed and self._gpu.room(count)
        turns = Turns(count, PATIENCE_S)
        with closing(turns), ThreadPoolExecutor(2 * count) as builders, ThreadPoolExecutor(count) as pool:
            waiting = {builders.submit(build, gpu, self._name, program): n for n, program in enumerate(programs)}
            started = {
                waiting[made]: pool.submit(self._judged, turns, made.result(), timed, together)
                for made in as_completed(waiting)
            }
            return [started[n].result() for n in range(len(programs))]

    def _judged(self, turns: Turns, built: BuiltProgram, timed: bool, together: bool) -> Evaluation:
        """Verified and made ready in one worker, then timed there when its turn comes."""
        with self._worker() as worker, ExitStack() as stack:
            with turns.verifying():
                with turns.shared():
                    checked = check(self._evaluator, self._name, built, worker, worker if together else None)
                if isinstance(checked, Evaluation):
                    return checked
                if not timed:
                    return measure(self._evaluator, self._name, checked, None)
                if together:
                    with turns.shared():  # a timing that waits goes between
                        time_it = ready(self._evaluator, self._name, checked, worker, stack)
                else:
                    time_it = unprepared(self._evaluator, self._name, checked)
            return measure(self._evaluator, self._name, checked, time_it, turns.run)

    @contextmanager
    def _worker(self) -> Iterator[GpuCandidates]:
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)
