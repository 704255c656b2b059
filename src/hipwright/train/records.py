"""Records of training: a problem, the outcome of an answer, and its reward (docs/training.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Fault, Record, Status

Clock = Literal["device", "estimate", ""]
"""The source of a speedup: paired timing on a device, the static estimate of builds, or none."""


class TrainingProblem(Record, frozen=True, kw_only=True):
    """A task for a policy. source: a file in the KernelBench form; facts: columns that reports group by."""

    name: str
    source: str
    split: str = "train"
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


class AnswerOutcome(Record, frozen=True, kw_only=True):
    """The evaluation of one answer. An outcome with another fault than the candidate's is no statement about it.

    status: the verdict's ("parse_error" also where no program could be read). speedup: against `baseline`, the median
    of pairs; low, high: its 95 % interval. base_ms, time_ms, floor_ms: baseline, program and roofline, milliseconds a
    call. clock: the source of these times. evidence: the verifier's findings as text, for a repair turn.
    """

    status: Status
    fault: Fault | None = None
    stage: str = ""
    message: str = ""
    evidence: str = ""
    compiled: bool = False
    correct: bool = False
    hack: bool = False
    coverage: float = 0.0
    clock: Clock = ""
    device: str = ""
    baseline: str = ""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    base_ms: float | None = None
    time_ms: float | None = None
    floor_ms: float | None = None
    own_time: float | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    program: str = ""
    seconds: float = 0.0

    @property
    def scorable(self) -> bool:
        """False where the machine, the task or a provider was at fault; such an outcome has no reward."""
        return self.fault is None or self.fault == "candidate"


class Turn(Record, frozen=True, kw_only=True):
    """One answer of a conversation and its outcome."""

    completion: str
    outcome: AnswerOutcome


class ScoredOutcome(Record, frozen=True, kw_only=True):
    """An outcome with its reward; None: unscorable, left out of baseline and gradient. parts: the reward's terms."""

    outcome: AnswerOutcome
    reward: float | None
    parts: dict[str, float] = msgspec.field(default_factory=dict)
