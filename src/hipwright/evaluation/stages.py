"""The stages of an evaluation, and `advance`, which runs a candidate through them.

| stage | typed result | ends the candidate |
|---|---|---|
| parse | `Parsed`, or a ModelNew file's warnings | a text that is no program |
| build | `Builds`, or a `PreparedModelNew` | the first build that failed |
| verify | `Verdict` | one that is not "pass" |
| trace | library calls and launches | |
| time | `TimingResult` | the verdict of a rejected timing |
| assess | `Assessment`: coverage, estimates, features | |

Each stage is an `EvaluationStage`: `work` computes the typed result, and `keep` adds it to the next `EvaluationState`.
`advance` runs stages until one ends the candidate; `conclude` makes the Evaluation. Uses differ in their schedule: the
thread or queue that runs a stage's work (`run`), the worker, how many candidates run at once, and the gate. The
schedules are `Evaluator` (one program), `BatchScorer` (score mode), the judge backends of `hipwright.train.judging`,
and the `Dispatcher`, whose jobs are whole evaluations on several GPUs.

A HipwrightError that a stage raises ends the candidate with the error's own verdict. A fault of the machine says
nothing about the candidate: the schedule runs the evaluation again (`hipwright.evaluation.faults`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from msgspec import structs

from hipwright.errors import HipwrightError
from hipwright.evaluation.results import Assessment, Findings, passed, rejected
from hipwright.events import doing
from hipwright.program import Parsed
from hipwright.program.modelnew.build import PreparedModelNew
from hipwright.records import Evaluation, Program, Verdict

_DOING = {
    "parse": "reading the program",
    "build": "compiling the program",
    "verify": "verifying the program",
    "trace": "tracing the program's launches",
    "time": "timing the program",
    "assess": "estimating the program's time",
}
T = TypeVar("T")
StageName = Literal["parse", "build", "verify", "trace", "time", "assess"]
Run = Callable[[Callable[[], T]], T]
"""Runs a stage's work somewhere and returns its result. Time spent waiting there does not count as the stage's."""


@dataclass(frozen=True)
class StageEnd:
    """Why no further stage runs.

    target: the target whose stage it was; "" where it holds for every target that runs.
    """

    verdict: Verdict
    target: str = ""


@dataclass(frozen=True)
class EvaluationState:
    """One candidate between two stages. seconds: spent in its stages so far, without waiting.

    parsed: of a program. converted, prepared: of a ModelNew file, as a program and with its extensions built. checks:
    facts for the checks of each of its verdicts. trace: the result of `verify.reply.checked_trace`.
    """

    program: Program
    found: Findings
    parsed: Parsed | None = None
    converted: Program | None = None
    prepared: PreparedModelNew | None = None
    checks: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)
    assessment: Assessment | None = None
    end: StageEnd | None = None
    seconds: float = 0.0

    def ended(self, verdict: Verdict, target: str = "") -> EvaluationState:
        """The state after a verdict after which no further stage runs."""
        return replace(self, end=StageEnd(verdict, target))


@dataclass(frozen=True)
class EvaluationStage(Generic[T]):
    """work: computes the result, where `Run` runs it. keep: computes the next state, in the caller's thread."""

    name: StageName
    work: Callable[[EvaluationState], T]
    keep: Callable[[EvaluationState, T], EvaluationState]


def in_place(work: Callable[[], T]) -> T:
    """Runs a stage's work in the caller's thread."""
    return work()


def advance(state: EvaluationState, *stages: EvaluationStage[Any], run: Run[Any] = in_place) -> EvaluationState:
    """The state after these stages. Stages after the one that ends the candidate are not run."""
    for stage in stages:
        if state.end is not None:
            break
        doing(_DOING[stage.name])
        state = _after(state, stage, run)
    return state


def _after(state: EvaluationState, stage: EvaluationStage[Any], run: Run[Any]) -> EvaluationState:
    spent = 0.0

    def timed() -> Any:
        nonlocal spent
        start = time.perf_counter()
        try:
            return stage.work(state)
        finally:
            spent = time.perf_counter() - start

    try:
        following = stage.keep(state, run(timed))
    except HipwrightError as error:
        following = state.ended(error.verdict())
    return replace(following, seconds=state.seconds + spent)


def conclude(state: EvaluationState, task: str) -> Evaluation:
    """The Evaluation of a candidate that passed every stage or was ended by one. task: the task's key."""
    if state.end is not None:
        evaluation = rejected(task, state.program, state.end.verdict, state.found, where=state.end.target)
    else:
        assert state.assessment is not None
        evaluation = passed(task, state.program, state.found, state.assessment)
    return structs.replace(evaluation, seconds=round(state.seconds, 4))
