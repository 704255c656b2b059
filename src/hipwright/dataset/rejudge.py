"""Judges a data set's rows anew: rows that hold get today's findings, the others are named and left out.

Programs that the engine of version 0.2 wrote hold helpers as pasted text, which is refused now; their helpers become
includes of device headers first, which changes their keys and not their kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

import hipwright
from hipwright.dataset.check import JOB_TIMEOUT_S, Group, groups_of, opened_group
from hipwright.dataset.judge import OpenTask, PairJudge, UnusableTask, is_refused
from hipwright.dataset.make import TaskMachine, verification_facts
from hipwright.dataset.records import Pair, build_summaries, estimates_us
from hipwright.dataset.workers import Opener, Pool
from hipwright.engine.emit.header_names import with_headers
from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.evaluation.results import compiler
from hipwright.events import Listener, silent
from hipwright.program import parse
from hipwright.records import Evaluation, Program, Record

SECOND_SEED = 0x5EC0  # of the draw that must refuse a wrong program too
_HIP = re.compile(r"(?<=HIP = r''')(.*?)(?=''')", re.DOTALL)
EvidenceText = Callable[[Evaluation, Program], str]


class RejudgedRow(Record, frozen=True, kw_only=True):
    """The result for one row. pair: the row as it is now, None where it fell; why: why it fell, or was not judged.

    void: an infrastructure error kept it from being judged.
    """

    key: str
    task: str
    kind: str
    pair: Pair | None = None
    why: str = ""
    void: bool = False


@dataclass
class RejudgeReport:
    """The results for all rows, in their order."""

    rows: list[RejudgedRow] = field(default_factory=list)

    @property
    def kept(self) -> list[Pair]:
        """The rows that hold."""
        return [one.pair for one in self.rows if one.pair is not None]

    @property
    def fallen(self) -> list[RejudgedRow]:
        """Rows that do not hold any more."""
        return [one for one in self.rows if one.pair is None and not one.void]

    @property
    def void(self) -> list[RejudgedRow]:
        """Rows that were not judged."""
        return [one for one in self.rows if one.void]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without the rows themselves."""

        def told(rows: list[RejudgedRow]) -> list[dict[str, str]]:
            return [{"key": one.key, "task": one.task, "kind": one.kind, "why": one.why} for one in rows]

        return {
            "rows": len(self.rows),
            "kept": len(self.kept),
            "upgraded": sum("upgraded_from" in one.provenance for one in self.kept),
            "fallen": told(self.fallen),
            "void": told(self.void),
        }


def rejudge(
    pairs: Iterable[Pair],
    opener: Opener,
    evidence_text: EvidenceText,
    *,
    workers: int,
    listener: Listener = silent,
) -> RejudgeReport:
    """Judges every row anew on inputs drawn now. opener: opens a worker's Machine.

    evidence_text: the text of a rejection. Events for the listener: "planned" {total, done}, "checked" {done, total,
    wrong} after each task.
    """
    rows = list(pairs)
    listener("planned", {"total": len(rows), "done": 0})
    groups = groups_of(rows)
    work = partial(_work, evidence_text=evidence_text)
    count = min(workers, max(len(groups), 1))
    pool: Pool[Group, list[RejudgedRow]] = Pool(count, opener, work, timeout_s=JOB_TIMEOUT_S)
    found: dict[str, RejudgedRow] = {}
    with closing(pool.run(groups)) as results:
        for group, result in results:
            made = [_failed(pair, result) for pair in group] if isinstance(result, HipwrightError) else result
            found |= {one.key: one for one in made}
            fallen = sum(one.pair is None for one in found.values())
            listener("checked", {"done": len(found), "total": len(rows), "wrong": fallen})
    return RejudgeReport([found[pair.key] for pair in rows])


def upgraded(program: Program) -> Program:
    """The program with device headers in place of helpers that version 0.2 pasted; others as they are."""
    try:
        parse(program.text)
    except HipwrightError:
        text = _HIP.sub(lambda found: with_headers(found[1]), program.text, count=1)
        return replace(program, text=text)
    return program


def _failed(pair: Pair, error: HipwrightError) -> RejudgedRow:
    void = isinstance(error, InfrastructureError)
    return RejudgedRow(key=pair.key, task=pair.task_name, kind=pair.kind, why=error.message, void=void)


# ---------------------------------------------------------------- in a worker


def _work(machine: TaskMachine, group: Group, *, evidence_text: EvidenceText) -> list[RejudgedRow]:
    with opened_group(machine, group) as bench:
        return [_rejudged(bench, pair, evidence_text) for pair in group]


def _rejudged(bench: OpenTask, pair: Pair, evidence_text: EvidenceText) -> RejudgedRow:
    about = {"key": pair.key, "task": pair.task_name, "kind": pair.kind}
    try:
        now, why = _now(PairJudge(bench, SECOND_SEED), pair, evidence_text)
    except (InfrastructureError, UnusableTask) as error:
        return _failed(pair, error)
    return RejudgedRow(**about, pair=now, why=why)  # type: ignore[arg-type]


def _now(judge: PairJudge, pair: Pair, evidence_text: EvidenceText) -> tuple[Pair | None, str]:
    """(the row as it is now, ""), or (None, why it does not hold)."""
    program = upgraded(pair.program) if pair.program.form == "program" else pair.program
    evaluation = judge.verdict(program)
    if pair.correct != evaluation.passed:
        told = f"{evaluation.status}: {evaluation.message}"[:300]
        return None, told if pair.correct else "it is called wrong and passes"
    if not pair.correct and not judge.is_wrong(program, evaluation):
        return None, f"it is not refused for its behaviour on two draws of inputs: {evaluation.status}"
    before, evidence = pair.before, pair.evidence
    if before is not None and pair.kind in ("repair", "step"):
        before = upgraded(before) if before.form == "program" else before
        earlier = judge.verdict(before)
        if earlier.passed != (pair.kind == "step"):
            return None, f"the program before is called {'right' if pair.kind == 'step' else 'wrong'}: {earlier.status}"
        if pair.kind == "repair" and is_refused(earlier):
            evidence = evidence_text(earlier, before)
    changed = {"upgraded_from": pair.program.key} if program.key != pair.program.key else {}
    facts = {"verified": verification_facts(evaluation), "hipwright": hipwright.__version__, "compiler": compiler()}
    return replace(
        pair,
        program=program,
        before=before,
        status=evaluation.status,
        evidence=evidence if evaluation.passed else evidence_text(evaluation, program),
        coverage=evaluation.coverage,
        builds=build_summaries(evaluation),
        estimate_us=estimates_us(evaluation),
        provenance={**pair.provenance, **facts, **changed},
    ), ""
