"""Hardware evaluator: how fast is the program, on which machine, and where does nobody know? Deterministic.

A typed reading of `hipwright.evaluation.Evaluator`. A figure keeps its target and its kind: a static estimate is never
reported as a measurement, nor one machine's time as another's.
"""

from __future__ import annotations

from typing import Literal, Protocol

from hipwright.evaluation import Evaluator
from hipwright.measure.words import device_words
from hipwright.records import Evaluation, Program, Record, TargetResult


class Figure(Record, frozen=True, kw_only=True):
    """One target. microseconds a call: measured, or estimated; None with kind "none" and the reason in `why_none`.

    device: the machine that measured, "" for an estimate. speedup and interval: against baseline, paired; None where
    nothing was timed.
    """

    target: str
    kind: Literal["measured", "estimate", "none"]
    microseconds: float | None = None
    device: str = ""
    baseline: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    why_none: str = ""


class MeasurementSummary(Record, frozen=True, kw_only=True):
    """All targets of one program, in the evaluator's order. score: what the search ranks by, of kind `score_kind`."""

    program: str
    passed: bool
    figures: tuple[Figure, ...] = ()
    score: float | None = None
    score_kind: Literal["estimate", "measured", "none"] = "none"

    def of(self, kind: str) -> tuple[str, ...]:
        """The targets with a figure of this kind."""
        return tuple(figure.target for figure in self.figures if figure.kind == kind)


class TimingEvaluator(Protocol):
    """What this role needs of the evaluator."""

    def evaluate(self, program: Program) -> Evaluation:
        """Every failure comes back inside the Evaluation."""
        ...


class HardwareEvaluator:
    """Verifies and times a program on every target that can."""

    name = "evaluator"

    def __init__(self, evaluator: Evaluator | TimingEvaluator) -> None:
        self._evaluator = evaluator

    def measure(self, program: Program) -> MeasurementSummary:
        """Every target's figure; a program that did not pass has none."""
        return read(self._evaluator.evaluate(program))


def read(evaluation: Evaluation) -> MeasurementSummary:
    """The hardware evaluator's part of an evaluation."""
    figures = tuple(_figure(name, result, evaluation.passed) for name, result in evaluation.targets.items())
    return MeasurementSummary(
        program=evaluation.program,
        passed=evaluation.passed,
        figures=figures,
        score=evaluation.score,
        score_kind=evaluation.score_kind,
    )


def _figure(target: str, result: TargetResult, passed: bool) -> Figure:
    if not passed:
        return Figure(target=target, kind="none", why_none="the program did not pass")
    if (timing := result.timing) is not None:
        name = next((n for n in ("eager", "compile", *sorted(timing.versus)) if n in timing.versus), "")
        versus = timing.versus.get(name)
        return Figure(
            target=target,
            kind="measured",
            microseconds=1000.0 * timing.median_ms,
            device=device_words(target, timing),
            baseline=name,
            speedup=versus.speedup if versus else None,
            interval=versus.interval if versus else None,
        )
    if result.estimate is not None:
        why = result.why_none.get("timing", "")
        return Figure(target=target, kind="estimate", microseconds=result.estimate.microseconds, why_none=why)
    why = result.why_none.get("timing") or next(iter(result.why_none.values()), "nothing can be timed there")
    return Figure(target=target, kind="none", why_none=why)
