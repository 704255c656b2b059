"""What learning passes around: a task to answer, what an answer came to, and what it is worth (docs/training.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Fault, Record, Status

Clock = Literal["device", "estimate", ""]
"""What a speedup rests on: paired timing on a device, the static estimate of builds, or nothing."""


class TrainingProblem(Record, frozen=True, kw_only=True):
    """A task that a policy answers. source: a file in the KernelBench form; facts: columns that reports group by."""

    name: str
    source: str
    split: str = "train"
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


class AnswerOutcome(Record, frozen=True, kw_only=True):
    """What the evaluator found of one answer. An outcome with a fault other than the candidate's says nothing of it.

    status: the verdict's ("parse_error" also where no program could be read). speedup: against `baseline`, the median
    of pairs; low, high: its 95 % interval. base_ms, time_ms, floor_ms: baseline, program and roofline, milliseconds a
    call. clock: what they rest on. evidence: the verifier's findings in words, for a repair turn.
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
        """False where the machine, the task or a provider was at fault: no reward, not even a bad one."""
        return self.fault is None or self.fault == "candidate"


class Turn(Record, frozen=True, kw_only=True):
    """One answer of a conversation and what it came to."""

    completion: str
    outcome: AnswerOutcome


class ScoredOutcome(Record, frozen=True, kw_only=True):
    """An outcome with its reward. None: unscorable, left out of baseline and gradient. parts: the terms of the sum."""

    outcome: AnswerOutcome
    reward: float | None
    parts: dict[str, float] = msgspec.field(default_factory=dict)
