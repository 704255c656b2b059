"""The verified programs of a run: those that passed."""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.archive.log import RunLog
from hipwright.records import Evaluation, Record, Run


class SimilarProgram(Record, frozen=True, kw_only=True):
    """A verified program of an earlier run.

    score: speedup over that run's first verified program by the kind in score_kind, 0.0 without a figure.
    microseconds: as evaluated. similarity: of the tasks, 0 to 1. features: of the kernels (archive/code_features.py).
    """

    task: str
    task_name: str
    program: str
    score: float = 0.0
    score_kind: str = "none"
    microseconds: float | None = None
    similarity: float = 1.0
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    features: dict[str, float] = msgspec.field(default_factory=dict)


def verified_of(run: Run, log: RunLog) -> list[SimilarProgram]:
    """The programs of a run that passed, in proposal order."""
    passed = {n: log.evaluated[n].evaluation for n in sorted(log.evaluated) if log.evaluated[n].evaluation.passed}
    first = next(iter(passed.values()), None)
    return [
        SimilarProgram(
            task=run.task,
            task_name=str(log.started.get("task_name") or run.task),
            program=evaluation.program,
            score=_speedup(evaluation, first),
            score_kind=evaluation.score_kind,
            microseconds=evaluation.score,
            choices=log.proposed[number].choices if number in log.proposed else {},
        )
        for number, evaluation in passed.items()
    ]


def _speedup(evaluation: Evaluation, first: Evaluation | None) -> float:
    """The speedup over the run's first verified program; 0.0 if their scores are of different kinds."""
    if first is None or not first.score or not evaluation.score or first.score_kind != evaluation.score_kind:
        return 0.0
    return round(first.score / evaluation.score, 4)


def speed_order(known: SimilarProgram) -> tuple[int, float, str, str]:
    """The sort key: measured before estimated before neither, then the fastest, then the key."""
    kind = {"measured": 0, "estimate": 1}.get(known.score_kind, 2)
    return kind, float("inf") if known.microseconds is None else known.microseconds, known.task, known.program
