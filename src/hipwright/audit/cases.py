"""The corpus: candidates as files, and the expected verdict on each (corpus/expected.toml).

corpus/tasks/ holds the tasks, corpus/FORM/KIND/ the candidates of one form and kind. Kinds: "honest" candidates must
pass; "broken" ones are wrong by mistake and "hostile" ones on purpose, and neither may earn credit.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from hipwright.records import CandidateForm, Record, Status
from hipwright.targets import CPU, TARGETS

CORPUS = Path(__file__).parent / "corpus"
EXECUTION_TARGETS = (CPU.name, *sorted(target.name for target in TARGETS.gpus))
"""Targets on which candidates run."""

Kind = Literal["honest", "broken", "hostile"]
Check = Literal[
    "parser",  # the plan language cannot express it
    "static rules",  # a rule over the syntax of a ModelNew file, or over its text
    "compiler",  # the source does not compile without files, clocks and host symbols
    "code audit",  # the compiled code uses something that no kernel needs
    "launch",  # limits of a launch, and every launch checked
    "bounds",  # access outside the buffers and LDS
    "races",  # two accesses without a barrier between them
    "barriers",  # threads of a block at different barriers
    "orders",  # other orders of threads and other poison in fresh memory
    "values",  # the float64 reference within the error budget, on every family and shape
    "second call",  # new values at the same addresses; the first call's outputs must not change
    "contract",  # dtype, shape, strides, storage of the outputs
    "inputs",  # inputs and parameters are the same afterwards
    "time limit",
    "memory limit",
    "sandbox",  # no network, files, processes or signals; another process judges
    "reply",  # replies of the candidate's process are checked before use
    "coverage",  # correct, but not its own work: no credit
    "clocks",  # host and device clock disagree
    "roofline",  # faster than the device can be
    "timed outputs",  # outputs of randomly chosen timed calls are verified
]
CHECKS: tuple[Check, ...] = get_args(Check)
ROWS = (
    "A1",
    "A2",
    "A3",
    "A4",
    "A5",
    "A7",
    "A8",
    "A9",
    "A10",
    "A11",
    "A12",
    "B1",
    "B2",
    "B3",
    "B4",
    "B5",
    "B6",
    "B7",
    "B8",
    "C1",
    "C2",
    "C3",
    "C4",
    "C5",
    "C6",
    "D1",
    "D2",
    "D3",
    "D4",
    "D5",
    "D6",
    "D8",
    "D9",
    "E1",
    "E2",
    "E3",
    "E4",
    "E5",
    "E6",
    "E7",
    "E8",
)
"""Rows of the taxonomy (docs/audit.md) that a verdict can detect; D7 and D10 (warm caches, one absurd shape) concern
the clock and the score.
"""


class CorpusCase(Record, frozen=True, kw_only=True):
    """One candidate.

    task: the stem of its task. row: the strategy's row in the taxonomy, "mistake" for an error without one, "" if
    honest. checks: the check that stops it is one of these. statuses: the possible verdicts. targets: where it can be
    detected; elsewhere it is not run. says: the message contains one of these, if there are any. rule: the name of the
    static rule that refuses it before it runs, where one does.
    """

    form: CandidateForm = msgspec.field(name="lane")
    kind: Kind
    name: str
    task: str
    row: str = ""
    checks: tuple[Check, ...] = ()
    statuses: tuple[Status, ...] = ("pass",)
    targets: tuple[str, ...] = EXECUTION_TARGETS
    says: tuple[str, ...] = ()
    rule: str = ""

    @property
    def id(self) -> str:
        """form/kind/name."""
        return f"{self.form}/{self.kind}/{self.name}"

    @property
    def path(self) -> Path:
        """The candidate's file."""
        return CORPUS / self.form / self.kind / f"{self.name}.py"

    @property
    def task_path(self) -> Path:
        """The task's file."""
        return task_path(self.task)

    @property
    def text(self) -> str:
        """The candidate's text."""
        return self.path.read_text(encoding="utf-8")

    def message_matches(self, message: str) -> bool:
        """Whether a message contains what it should."""
        return not self.says or any(part in message for part in self.says)

    @property
    def honest(self) -> bool:
        """Whether it must pass."""
        return self.kind == "honest"


def task_path(name: str) -> Path:
    """The file of a task of the corpus."""
    return CORPUS / "tasks" / f"{name}.py"


@cache
def all_cases() -> tuple[CorpusCase, ...]:
    """Every candidate of the corpus, in the table's order. Raises ValueError for a row with unknown keys."""
    table = tomllib.loads((CORPUS / "expected.toml").read_text(encoding="utf-8"))
    return tuple(
        _case(form, kind, name, row)
        for form, kinds in table.items()
        for kind, rows in kinds.items()
        for name, row in rows.items()
    )


def select(
    patterns: Sequence[str] = (), *, form: str | None = None, kind: str | None = None, target: str | None = None
) -> tuple[CorpusCase, ...]:
    """Cases whose id, or a part of it between slashes, matches one of the patterns (shell style); all without any."""

    def matches(case: CorpusCase) -> bool:
        known = (case.id, *case.id.split("/"))
        return (
            (form is None or case.form == form)
            and (kind is None or case.kind == kind)
            and (target is None or target in case.targets)
            and (not patterns or any(fnmatch.fnmatch(part, p) for part in known for p in patterns))
        )

    return tuple(case for case in all_cases() if matches(case))


def by_task(cases: Iterable[CorpusCase]) -> dict[str, list[CorpusCase]]:
    """Cases grouped by task: a task is opened once, and its expectations serve all its cases."""
    groups: dict[str, list[CorpusCase]] = {}
    for case in cases:
        groups.setdefault(case.task, []).append(case)
    return groups


def _case(form: str, kind: str, name: str, row: dict[str, Any]) -> CorpusCase:
    known = {"task", "row", "check", "status", "targets", "says", "rule"}
    if extra := set(row) - known:
        raise ValueError(f"expected.toml: {form}.{kind}.{name} has unknown keys {sorted(extra)}")
    return CorpusCase.from_dict(
        {
            "lane": form,
            "kind": kind,
            "name": name,
            "task": row["task"],
            "row": row.get("row", ""),
            "checks": _as_list(row.get("check", [])),
            "statuses": _as_list(row.get("status", "pass")),
            "targets": _as_list(row.get("targets", list(EXECUTION_TARGETS))),
            "says": _as_list(row.get("says", [])),
            "rule": row.get("rule", ""),
        }
    )


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
