"""Correctness verifier: is the program right? Deterministic, and never a language model's to decide.

A typed reading of `hipwright.evaluation.Evaluator` (docs/verification.md): the same stages, without the clock.
"""

from __future__ import annotations

from typing import Literal, Protocol

from hipwright.evaluation import Evaluator
from hipwright.records import Evaluation, Fault, Program, Record, Stage, Status

Gate = Literal["fast", "full"]


class VerificationSummary(Record, frozen=True, kw_only=True):
    """What verification found. proven: targets whose results were compared; compiled: those that were only built.

    where: the target whose verdict decided a rejection, "" for a stage before any. worst_error: largest error divided
    by its tolerance over all targets. workloads: those that stood as evidence.
    """

    program: str
    gate: Gate
    status: Status
    fault: Fault | None = None
    stage: Stage = "verify"
    where: str = ""
    message: str = ""
    proven: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    worst_error: float | None = None
    workloads: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True only when every target that can compare results did, and found them right."""
        return self.status == "pass" and bool(self.proven)


class VerifyingEvaluator(Protocol):
    """What this role needs of the evaluator."""

    def evaluate(self, program: Program, *, gate: Gate = "full", timed: bool = True) -> Evaluation:
        """Every failure comes back inside the Evaluation."""
        ...


class CorrectnessVerifier:
    """gate: "full" before a program may be a parent or a winner, "fast" where a reward needs an answer soon."""

    name = "verifier"

    def __init__(self, evaluator: Evaluator | VerifyingEvaluator, gate: Gate = "full") -> None:
        self._evaluator = evaluator
        self.gate = gate

    def check(self, program: Program) -> VerificationSummary:
        """Verify one program; nothing is timed."""
        return read(self._evaluator.evaluate(program, gate=self.gate, timed=False), self.gate)


def read(evaluation: Evaluation, gate: Gate = "full") -> VerificationSummary:
    """The verifier's part of an evaluation."""
    verdicts = {name: r.verdict for name, r in evaluation.targets.items() if r.verdict is not None}
    failed = next(((name, v) for name, v in verdicts.items() if not v.passed), None)
    proven = tuple(name for name, verdict in verdicts.items() if verdict.passed and verdict.workloads)
    built = tuple(n for n, r in evaluation.targets.items() if r.build is not None and r.build.ok and n not in proven)
    errors = [v.worst_error for v in verdicts.values() if v.worst_error is not None]
    return VerificationSummary(
        program=evaluation.program,
        gate=gate,
        status=evaluation.status,
        fault=evaluation.fault,
        stage=failed[1].stage if failed else "verify",
        where=failed[0] if failed else "",
        message=evaluation.message,
        proven=proven,
        compiled=built,
        worst_error=max(errors, default=None),
        workloads=tuple(dict.fromkeys(w for v in verdicts.values() for w in v.workloads)),
        seconds=evaluation.seconds,
    )
