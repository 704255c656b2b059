"""Score mode: many programs of one task at once, for learning (docs/score.md).

The fast gate instead of the full one, and a short paired timing against eager instead of a long one against every
baseline. Programs are compiled side by side, all of them from the start. Wave by wave they are verified side by side,
each verifier with a worker of its own; then those that pass are timed one after the other, alone on the GPU. The
verdicts are the evaluator's: what score mode passes, `evaluate` with the full gate passes too in all but a few of a
hundred cases (measured; see the page).
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluate.gpu import GpuTask
from hipwright.evaluate.pipeline import Evaluator
from hipwright.evaluate.results import Findings, build_verdict, rejected
from hipwright.program import Parsed, parse
from hipwright.records import Evaluation, Program
from hipwright.verify.gpu_client import GpuCandidates

WORKERS = 10
"""Candidate processes that verify at once, if there are processors for them."""
WAVE = 2
"""Programs for each of them in a wave: verified together, then timed one by one."""


@dataclass(frozen=True)
class _Built:
    """A program and what compiling it came to."""

    program: Program
    found: Findings
    outcome: Parsed | Evaluation
    seconds: float


@dataclass(frozen=True)
class _Checked:
    """A program that passed the fast gate and waits for its timing."""

    program: Program
    found: Findings
    trace: dict[str, Any]
    seconds: float


class Scorer:
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
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            worker.close()

    def warm(self) -> None:
        """Start the workers and work out what is right, so that the first batch does not wait for it."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            started = [pool.submit(worker.open) for worker in self._workers]
            self._evaluator.oracle.prepare(every=True)
            for future in started:
                future.result()

    def score(self, programs: Sequence[Program], *, timed: bool = True) -> list[Evaluation]:
        """An evaluation for each, in order. A fault of the machine is told in it, never as a wrong kernel."""
        found: list[Evaluation] = []
        wave = WAVE * len(self._workers)
        with ThreadPoolExecutor(wave) as builders, ThreadPoolExecutor(wave) as pool:
            built = [builders.submit(self._built, program) for program in programs]
            for start in range(0, len(programs), wave):
                checked = list(pool.map(self._checked, built[start : start + wave]))
                found += [one if isinstance(one, Evaluation) else self._timed(one, timed) for one in checked]
        return found

    # ---------------------------------------------------------------- the three phases

    def _built(self, program: Program) -> _Built:
        """Compiled, on the processor alone: later waves are built while earlier ones are on the GPU."""
        start = time.perf_counter()
        found = Findings((self._name,))
        outcome = self._guarded(program, found, lambda: self._build(program, found))
        return _Built(program, found, outcome, time.perf_counter() - start)

    def _build(self, program: Program, found: Findings) -> Parsed | Evaluation:
        if program.lane != "program":
            raise BadInput("score mode takes programs only", hint="`hipwright eval` judges ModelNew files")
        task, parsed = self._evaluator.handle.task.key, parse(program.text)
        found.gpu[self._name] = build = self._gpu.build(parsed, parsed.defines(program.knobs))
        return parsed if build.ok else rejected(task, program, build_verdict(build), found)

    def _checked(self, made: Future[_Built]) -> _Checked | Evaluation:
        built, start = made.result(), time.perf_counter()
        program, found, outcome = built.program, built.found, built.outcome
        if isinstance(outcome, Evaluation):
            return replace(outcome, seconds=round(built.seconds, 4))
        parsed = outcome
        checked = self._guarded(program, found, lambda: self._check(program, parsed, found))
        spent = built.seconds + time.perf_counter() - start
        if isinstance(checked, Evaluation):
            return replace(checked, seconds=round(spent, 4))
        return _Checked(program, found, checked, spent)

    def _check(self, program: Program, parsed: Parsed, found: Findings) -> dict[str, Any] | Evaluation:
        task, build, oracle = self._evaluator.handle.task.key, found.gpu[self._name], self._evaluator.oracle
        with self._worker() as worker:
            verdict = self._gpu.verify(parsed, program, build, oracle, gate="fast", worker=worker)
            if not verdict.passed:
                return rejected(task, program, verdict, found, where=self._name)
            found.verdicts[self._name] = verdict
            return self._gpu.trace(program, oracle, self._evaluator.outline(), worker)

    def _timed(self, checked: _Checked, timed: bool) -> Evaluation:
        start = time.perf_counter()
        program, found = checked.program, checked.found

        def measure() -> Evaluation:
            if timed:
                build, outline = found.gpu[self._name], self._evaluator.outline()
                result = self._gpu.time(program, build, gate="fast", outline=outline, again=False)
                if result.timing is not None:
                    found.timings[self._name] = result.timing
                if result.verdict is not None:
                    task = self._evaluator.handle.task.key
                    return rejected(task, program, result.verdict, found, where=self._name)
            return self._evaluator.finish(program, checked.trace, found)

        done = self._guarded(program, found, measure)
        assert isinstance(done, Evaluation)
        return replace(done, seconds=round(checked.seconds + time.perf_counter() - start, 4))

    def _guarded(self, program: Program, found: Findings, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except HipwrightError as error:
            return rejected(self._evaluator.handle.task.key, program, error.verdict(), found)

    @contextmanager
    def _worker(self) -> Iterator[GpuCandidates]:
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)
