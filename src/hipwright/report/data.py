"""What a report is made of: records, and nothing that has to be computed from a live process."""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.archive import TrialDetail
from hipwright.records import Evaluation, Program, Record, Run, Task


class ReportData(Record, frozen=True, kw_only=True):
    """Everything a report shows.

    hip and plan are the two halves of the program's text; explanation is what `engine.explain` returned; command
    reproduces the run; not_measured says, a line each, what this run could not know; models: what language models were
    asked and what it cost (`hipwright.llm.cost.spending`), None where none were.
    """

    task: Task
    command: str
    version: str
    evaluation: Evaluation | None = None
    program: Program | None = None
    hip: str = ""
    plan: str = ""
    run: Run | None = None
    trials: tuple[TrialDetail, ...] = ()
    explanation: dict[str, Any] = msgspec.field(default_factory=dict)
    not_measured: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    evaluations: int = 0
    note: str = ""
    models: dict[str, Any] | None = None
