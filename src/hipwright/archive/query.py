"""Read-only queries on the archive: list runs, show one run, compare two. A new query is a function here.

A query skips rows that cannot be read; `Archive.damaged` names them.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from hipwright.archive.digests import listed
from hipwright.archive.lineage import ancestors, origins, tree
from hipwright.archive.log import Counted, RunLog
from hipwright.archive.readable import readable_log
from hipwright.archive.store import Archive
from hipwright.archive.summary import RunSummary, costs_of, summary_of
from hipwright.records import Evaluation, Program, Record, Run


class TrialDetail(Record, frozen=True, kw_only=True):
    """One proposal with its outcome. status: "duplicate", "not proposed" or "pending" without an evaluation.

    notes: the source's notes on its origin (author, model, retrieved programs).
    """

    number: int
    round: int
    operator: str
    program: str
    parents: tuple[str, ...] = ()
    action: dict[str, Any] = msgspec.field(default_factory=dict)
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    status: str = "pending"
    score: float | None = None
    score_kind: str = "none"
    coverage: float = 0.0
    kept: bool = False
    best: bool = False
    reason: str = ""
    message: str = ""
    seconds: float = 0.0
    cached: bool = False
    attempts: int = 0


class RunDetail(Record, frozen=True, kw_only=True):
    """The data of `hipwright show`: all trials, the winner, and its ancestors (lineage), oldest first.

    costs: evaluations, cached, retries, duplicates, failed_proposals, resumes; seconds (evaluation time, summed) and
    wall_seconds (first to last event, pauses included). counted: what limits the parents, by their trial's number.
    """

    summary: RunSummary
    run: Run
    trials: tuple[TrialDetail, ...]
    best: Evaluation | None = None
    program: Program | None = None
    lineage: tuple[TrialDetail, ...] = ()
    tree: tuple[str, ...] = ()
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    counted: dict[int, Counted] = msgspec.field(default_factory=dict)


class RunComparison(Record, frozen=True, kw_only=True):
    """The data of `hipwright compare`. diff: unified, of the winners' texts.

    ratio: b's best score over a's (below 1: b is better), None unless both runs are of one task and kind of score.
    """

    a: RunSummary
    b: RunSummary
    same_task: bool
    common_programs: int
    ratio: float | None = None
    diff: tuple[str, ...] = ()


def list_runs(archive: Archive) -> list[RunSummary]:
    """Summaries of all runs, newest first."""
    return [digest.summary for digest in reversed(listed(archive))]


def show(archive: Archive, name: str) -> RunDetail:
    """All details of one run. BadInput when there is no such run."""
    run = archive.run(name)
    log = readable_log(archive, run.id)
    summary = summary_of(archive, run, log)
    rows = {trial.number: trial for trial in trials(log)}
    return RunDetail(
        summary=summary,
        run=run,
        trials=tuple(rows.values()),
        best=log.evaluated[summary.best_number].evaluation if summary.best else None,
        program=archive.find(summary.best, Program) if summary.best else None,
        lineage=tuple(rows[p.number] for p in ancestors(log, summary.best)),
        tree=tuple(tree(log)),
        costs=costs_of(log),
        counted=dict(log.counted),
    )


def compare(archive: Archive, first: str, second: str) -> RunComparison:
    """Compares two runs. BadInput when one does not exist."""
    runs = [archive.run(first), archive.run(second)]
    logs = [readable_log(archive, run.id) for run in runs]
    a, b = (summary_of(archive, run, log) for run, log in zip(runs, logs, strict=True))
    evaluated = [{item.evaluation.program for item in log.evaluated.values()} for log in logs]
    same_task = runs[0].task == runs[1].task
    comparable = same_task and a.score_kind == b.score_kind and a.score and b.score
    return RunComparison(
        a=a,
        b=b,
        same_task=same_task,
        common_programs=len(evaluated[0] & evaluated[1]),
        ratio=b.score / a.score if comparable and a.score and b.score else None,
        diff=_diff(archive, a, b),
    )


def trials(log: RunLog) -> list[TrialDetail]:
    """Every proposal of a run with its outcome, in proposal order."""
    return [trial_of(log, number) for number in sorted(log.proposed)]


def trial_of(log: RunLog, number: int) -> TrialDetail:
    """One proposal of a run with its outcome."""
    proposed, evaluated = log.proposed[number], log.evaluated.get(number)
    decision = log.decided.get(number)
    status = "not proposed" if not proposed.program else "pending" if proposed.evaluable else "duplicate"
    trial: dict[str, Any] = {"status": status, "message": proposed.error}
    if evaluated is not None:
        e = evaluated.evaluation
        trial = {"status": e.status, "message": e.message, "score": e.score, "coverage": e.coverage}
        trial["score_kind"] = e.score_kind
        trial |= {"seconds": e.seconds, "cached": evaluated.cached, "attempts": evaluated.attempts}
    if decision is not None:
        trial |= {"kept": decision.kept, "best": decision.best, "reason": decision.reason}
    return TrialDetail(
        number=number,
        round=proposed.round,
        operator=proposed.expansion.operator,
        program=proposed.program,
        parents=origins(proposed.expansion),
        action=proposed.expansion.action,
        choices=proposed.choices,
        notes=proposed.notes,
        **trial,
    )


def _diff(archive: Archive, a: RunSummary, b: RunSummary) -> tuple[str, ...]:
    if not a.best or not b.best or a.best == b.best:
        return ()
    programs = [archive.find(one.best, Program) for one in (a, b)]
    before, after = ([] if program is None else _text_lines(program) for program in programs)
    names = (f"{a.id}/{a.best[:8]}", f"{b.id}/{b.best[:8]}")
    return tuple(difflib.unified_diff(before, after, *names, lineterm=""))


def _text_lines(program: Program) -> list[str]:
    knobs = [f"# {name} = {value}" for name, value in sorted(program.knobs.items())]
    return [*knobs, *program.text.splitlines()]
