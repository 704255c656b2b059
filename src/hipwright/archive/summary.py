"""A run in a line: its state, its best program, and what it has cost."""

from __future__ import annotations

from typing import Literal

from hipwright.archive.log import RunLog
from hipwright.archive.store import Archive
from hipwright.records import Record, Run

RunStatus = Literal["running", "finished", "interrupted"]


class RunSummary(Record, frozen=True, kw_only=True):
    """One line of `hipwright runs`. score: of the best program; started: Unix time; seconds: of evaluation."""

    id: str
    task: str
    status: RunStatus
    policy: str
    seed: int
    budget: int
    evaluations: int
    score: float | None = None
    score_kind: str = "none"
    coverage: float = 0.0
    best: str = ""
    best_number: int = -1
    confirmed: bool | None = None
    reason: str = ""
    started: float = 0.0
    seconds: float = 0.0


def summary_of(archive: Archive, run: Run, log: RunLog) -> RunSummary:
    """The summary of a run whose log has been read."""
    number = best_trial(log)
    best = log.evaluated[number].evaluation if number is not None else None
    status: RunStatus = "finished"
    if log.finished is None:
        status = "running" if archive.is_locked(run.id) else "interrupted"
    confirmed = log.confirmed.get(number) if number is not None else None
    return RunSummary(
        id=run.id,
        task=str(log.started.get("task_name") or run.task),
        status=status,
        policy=run.policy,
        seed=run.seed,
        budget=run.budget,
        evaluations=len(log.evaluated),
        score=best.score if best else None,
        score_kind=best.score_kind if best else "none",
        coverage=best.coverage if best else 0.0,
        best=best.program if best else "",
        best_number=-1 if number is None else number,
        confirmed=confirmed.passed if confirmed else None,
        reason=log.finished.reason if log.finished else "",
        started=log.clock_started,
        seconds=costs_of(log)["seconds"],
    )


def costs_of(log: RunLog) -> dict[str, float]:
    """What a run has cost so far; see `RunDetail`."""
    evaluated = log.evaluated.values()
    return {
        "evaluations": len(evaluated),
        "cached": sum(item.cached for item in evaluated),
        "retries": sum(max(item.attempts - 1, 0) for item in evaluated),
        "duplicates": sum(p.duplicate_of is not None for p in log.proposed.values()),
        "failed_proposals": sum(not p.program for p in log.proposed.values()),
        "resumes": log.resumes,
        "seconds": round(sum(item.evaluation.seconds for item in evaluated if not item.cached), 3),
        "wall_seconds": round(log.clock_ended - log.clock_started, 3),
    }


def best_trial(log: RunLog) -> int | None:
    """The winner's number; for an unfinished run the latest best, else the fastest that passed."""
    if log.finished is not None:
        return log.finished.number if log.finished.best else None
    decided = [number for number, decision in log.decided.items() if decision.best]
    if decided:
        return max(decided)
    scores = {n: e.evaluation.score or 0.0 for n, e in log.evaluated.items() if e.evaluation.passed}
    return min(scores, key=lambda number: (scores[number], number), default=None)
