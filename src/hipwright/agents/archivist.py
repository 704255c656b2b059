"""The archive manager: labels of a run's trials, and rows for training. Deterministic.

    labels   one row per proposal: outcome, whose fault, figures
    sft      verified programs only: from the task, and steps (a repair, or a gain of at least 5 % over the parent)
    pairs    rows of a data set: verified programs, repairs and steps, and wrong programs with their evidence
    rl       every judged program: prompt, task as ground truth, the inputs of a reward; wrong ones with the evidence.
             Machine faults give no row.

A program that the second verification refused counts as wrong. Each row holds its provenance, and no path, no seed of
the verifier and no expected output beyond the first wrong element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import hipwright
from hipwright.agents.evidence import evidence
from hipwright.archive import Archive, read_log
from hipwright.dataset.judge import WRONG_STATUSES
from hipwright.dataset.make import verification_facts
from hipwright.dataset.records import STEP_GAIN, Kind, Pair, build_summaries, estimates_us, measured_timing
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Program, Record, Run
from hipwright.search import Trial, fitness
from hipwright.search.interfaces import INFRASTRUCTURE

Outcome = Literal["verified", "wrong", "broken", "hack", "void", "duplicate", "no program", "pending"]

_BROKEN = ("parse_error", "compile_error", "launch_error", "timeout")
_HACKS = ("hack", "untrusted")


class Labels(Record, frozen=True, kw_only=True):
    """The labels of one proposal. outcome "void": the machine failed, and nothing is known of the program.

    score: in microseconds, of `score_kind`. author: "engine" or "llm", "" where nothing was written.
    """

    number: int
    outcome: Outcome
    status: str = ""
    fault: str | None = None
    author: str = ""
    operator: str = ""
    compiled: bool = False
    correct: bool = False
    kept: bool = False
    best: bool = False
    coverage: float = 0.0
    score: float | None = None
    score_kind: str = "none"


def label(trial: Trial) -> Labels:
    """Returns the labels of a trial."""
    proposed, e, decision = trial.proposed, trial.evaluation, trial.decision
    known: dict[str, Any] = {"number": trial.number, "operator": proposed.expansion.operator, "author": proposed.author}
    if e is None:
        outcome = "no program" if not proposed.program else "pending" if proposed.evaluable else "duplicate"
        return Labels(outcome=outcome, **known)  # type: ignore[arg-type]
    return Labels(
        outcome=_outcome(e),
        status=e.status,
        fault=e.fault,
        compiled=_outcome(e) != "void" and e.status not in ("parse_error", "compile_error"),
        correct=e.passed,
        kept=bool(decision and decision.kept),
        best=bool(decision and decision.best),
        coverage=e.coverage,
        score=e.score,
        score_kind=e.score_kind,
        **known,
    )


def _outcome(e: Evaluation) -> Outcome:
    if e.passed:
        return "verified"
    if e.fault in INFRASTRUCTURE:
        return "void"
    return "broken" if e.status in _BROKEN else "hack" if e.status in _HACKS else "wrong"


# ---------------------------------------------------------------- rows


def sft_records(archive: Archive, run: str) -> list[dict[str, Any]]:
    """Rows for supervised training in plain JSON types: kind "program" (from the task alone), "repair" or "step"."""
    history = _History.read(archive, run)
    return [row for trial in history.trials if history.verified(trial) for row in _sft_rows(history, trial)]


def rl_records(archive: Archive, run: str) -> list[dict[str, Any]]:
    """Rows for reinforcement learning in plain JSON types: one per judged program, with the inputs of a reward."""
    history = _History.read(archive, run)
    return [_rl_row(history, t) for t in history.trials if t.evaluation and _outcome(t.evaluation) != "void"]


def label_records(archive: Archive, run: str) -> list[dict[str, Any]]:
    """The labels and provenance of every proposal."""
    history = _History.read(archive, run)
    return [{"kind": "labels", **label(t).to_dict(), "provenance": history.provenance(t)} for t in history.trials]


KINDS: dict[str, Callable[[Archive, str], list[dict[str, Any]]]] = {
    "labels": label_records,
    "sft": sft_records,
    "rl": rl_records,
}


def records(archive: Archive, run: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of one kind. BadInput for an unknown kind or run."""
    if kind not in KINDS:
        raise BadInput(f"unknown kind of record {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    yield from KINDS[kind](archive, run)


def pairs(archive: Archive, run: str) -> Iterator[Pair]:
    """Yields a run's rows for a data set (docs/dataset.md): verified programs, repairs, steps and wrong programs.

    Programs that the second verification refused are left out: their stored verdict says that they passed.
    """
    history = _History.read(archive, run)
    for trial in history.trials:
        e = trial.evaluation
        if e is None or (e.passed and not history.verified(trial)):
            continue
        if e.passed:
            first = trial.proposed.expansion.operator == "default" and not trial.proposed.notes.get("model")
            yield _pair(history, trial, e, "engine" if first else "variant")
            yield from _repairs_and_steps(history, trial, e)
        elif e.fault == "candidate" and e.status in WRONG_STATUSES:
            yield _pair(history, trial, e, "negative", evidence=evidence(e, history.program(trial)))


def _repairs_and_steps(history: _History, trial: Trial, e: Evaluation) -> Iterator[Pair]:
    """The rows of a verified program as a repair of a failed one and as a step from a slower parent."""
    failed = history.failed_predecessor(trial)
    if failed is not None and failed.evaluation is not None and failed.evaluation.status in WRONG_STATUSES:
        before = history.program(failed)
        yield _pair(history, trial, e, "repair", evidence=evidence(failed.evaluation, before), before=before)
    if (parent := history.slower_parent(trial)) is not None:
        made = {"gain": round(_gain(trial, parent), 4), "gain_by": e.score_kind}
        yield _pair(history, trial, e, "step", before=history.program(parent), made=made)


def _pair(
    history: _History,
    trial: Trial,
    e: Evaluation,
    kind: Kind,
    *,
    evidence: str = "",
    before: Program | None = None,
    made: dict[str, Any] | None = None,
) -> Pair:
    provenance = {
        "made": {"by": "a search", **(made or {})},
        "verified": verification_facts(e),
        **history.provenance(trial),
    }
    return Pair(
        task=history.run.task,
        task_name=history.task_name,
        task_source=history.source,
        program=history.program(trial),
        kind=kind,
        correct=e.passed,
        status=e.status,
        evidence=evidence,
        before=before,
        coverage=e.coverage,
        builds=build_summaries(e),
        estimate_us=estimates_us(e),
        timing=measured_timing(e),
        provenance=provenance,
        licence="",
    )


@dataclass(frozen=True)
class _History:
    """A run's trials and their programs."""

    archive: Archive
    run: Run
    task_name: str
    fingerprint: str
    trials: tuple[Trial, ...]
    refused: frozenset[str]

    @classmethod
    def read(cls, archive: Archive, name: str) -> _History:
        run = archive.run(name)
        log = read_log(archive.events(run.id))
        trials = tuple(
            Trial(p, e.evaluation if (e := log.evaluated.get(n)) else None, log.decided.get(n))
            for n, p in sorted(log.proposed.items())
        )
        refused = frozenset(item.program for item in log.confirmed.values() if not item.passed)
        started = log.started
        return cls(
            archive, run, str(started.get("task_name", "")), str(started.get("fingerprint", "")), trials, refused
        )

    @cached_property
    def source(self) -> str:
        return self.archive.task(self.run.task).source

    def verified(self, trial: Trial) -> bool:
        return trial.passed and trial.proposed.program not in self.refused

    def program(self, trial: Trial) -> Program:
        return self.archive.program(trial.proposed.program)

    def trial(self, key: str) -> Trial | None:
        """The trial that proposed a program."""
        return next((t for t in self.trials if t.proposed.program == key and t.proposed.evaluable), None)

    def failed_predecessor(self, trial: Trial) -> Trial | None:
        """The trial of the failed program that this trial repairs."""
        failed = self.trial(str(trial.proposed.expansion.action.get("failed", "")))
        return failed if failed is not None and failed.evaluation is not None and not failed.passed else None

    def slower_parent(self, trial: Trial) -> Trial | None:
        """The verified parent, if the trial is certainly faster (fitness.faster) by at least `STEP_GAIN`."""
        parent = next((self.trial(key) for key in trial.proposed.expansion.parents[:1]), None)
        if parent is None or parent.evaluation is None or trial.evaluation is None or not self.verified(parent):
            return None
        certain = fitness.faster(trial.evaluation, parent.evaluation)
        return parent if certain and _gain(trial, parent) >= STEP_GAIN else None

    @cached_property
    def first(self) -> Evaluation | None:
        """The run's first verified program, which gains are relative to."""
        return next((t.evaluation for t in self.trials if self.verified(t)), None)

    def provenance(self, trial: Trial) -> dict[str, Any]:
        p = trial.proposed
        return {
            "run": self.run.id,
            "number": trial.number,
            "round": p.round,
            "operator": p.expansion.operator,
            "author": p.author,
            "model": p.notes.get("model", ""),
            "parents": list(p.expansion.parents),
            "policy": self.run.policy,
            "seed": self.run.seed,
            "targets": list(self.run.targets),
            "evaluator": self.fingerprint,
            "hipwright": hipwright.__version__,
        }


def _sft_rows(history: _History, trial: Trial) -> Iterator[dict[str, Any]]:
    """The SFT rows of a verified program: the program itself, the repair and the step that led to it."""
    yield _row(history, trial, "program", {})
    failed = history.failed_predecessor(trial)
    if failed is not None and failed.evaluation is not None:
        before = history.program(failed)
        yield _row(
            history, trial, "repair", {"program": before.to_dict(), "evidence": evidence(failed.evaluation, before)}
        )
    parent = history.slower_parent(trial)
    if parent is not None and parent.evaluation is not None:
        prompt = _step_prompt(history, parent, parent.evaluation)
        yield {**_row(history, trial, "step", prompt), "gain": round(_gain(trial, parent), 4)}


def _step_prompt(history: _History, trial: Trial, e: Evaluation) -> dict[str, Any]:
    """The prompt of a step: the program to improve and its evidence."""
    program = history.program(trial)
    return {"program": program.to_dict(), "evidence": evidence(e, program)}


def _gain(trial: Trial, parent: Trial) -> float:
    assert trial.evaluation is not None and parent.evaluation is not None
    return fitness.gain(trial.evaluation, parent.evaluation)


def _row(history: _History, trial: Trial, kind: str, prompt: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "task": history.run.task,
        "task_name": history.task_name,
        "prompt": {"task": history.source, "targets": list(history.run.targets), **prompt},
        "completion": history.program(trial).to_dict(),
        "labels": label(trial).to_dict(),
        "provenance": history.provenance(trial),
    }


def _rl_row(history: _History, trial: Trial) -> dict[str, Any]:
    assert trial.evaluation is not None
    e, correct = trial.evaluation, history.verified(trial)
    parent = next((history.trial(key) for key in trial.proposed.expansion.parents[:1]), None)
    prompt = {"program": history.program(parent).to_dict()} if parent else {}
    row = _row(history, trial, "positive" if correct else "negative", prompt)
    row["ground_truth"] = {"task": history.run.task, "tolerance": _tolerance(history)}
    row["reward"] = {
        "compiled": row["labels"]["compiled"],
        "correct": correct,
        "hack": _outcome(e) == "hack",
        "coverage": e.coverage,
        "score": e.score if correct else None,
        "score_kind": e.score_kind if correct else "none",
        "gain_over_first": _relative_gain(e, history.first) if correct else None,
        "gain_over_parent": _relative_gain(e, parent.evaluation) if correct and parent else None,
    }
    if not correct:
        refusal = "it passed once and was refused on fresh inputs" if e.passed else ""
        row["evidence"] = refusal or evidence(e, history.program(trial))
    return row


def _tolerance(history: _History) -> dict[str, Any]:
    return history.archive.task(history.run.task).tolerance.to_dict()


def _relative_gain(e: Evaluation, before: Evaluation | None) -> float | None:
    """The share of time saved; None where the two have no figures of the same kind."""
    if before is None or fitness.score(e) is None or fitness.score(before) is None:
        return None
    return round(fitness.gain(e, before), 4)
