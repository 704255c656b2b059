"""The data of a run's report, and how it is taken from the archive."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hipwright import __version__, syntax
from hipwright.archive import RunDetail, TrialDetail
from hipwright.measure.gain import Gain
from hipwright.records import Evaluation, Program, Record, Run, Task


class ReportData(Record, frozen=True, kw_only=True):
    """All that a run's report shows.

    hip, plan: the two halves of the program's text; explanation: of `engine.explain`; command: reproduces the run;
    not_measured: one line for each thing that the run could not measure; models: spending on language models
    (`hipwright.llm.cost.spending`), None without models; start: the kernel that the run began with beside its winner,
    with the comparison as a "sentence", None for a run without one. gains: the program beside each baseline, by target.
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
    start: dict[str, Any] | None = None
    counters: dict[str, Any] = msgspec.field(default_factory=dict)
    saved: dict[str, Any] = msgspec.field(default_factory=dict)
    gains: tuple[Gain, ...] = ()


def from_run(
    detail: RunDetail,
    task: Task,
    evaluation: Evaluation | None,
    *,
    command: str,
    explanation: Mapping[str, Any] | None = None,
    not_measured: Sequence[str] = (),
    note: str = "",
    models: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
    counters: Mapping[str, Any] | None = None,
    saved: Mapping[str, Any] | None = None,
    gains: Sequence[Gain] = (),
) -> ReportData:
    """Collects the report of a run; evaluation: the one shown in full, of the winner or of the last failure."""
    program = detail.program
    hip, plan = split(program.text) if program else ("", "")
    return ReportData(
        task=task,
        command=command,
        version=__version__,
        evaluation=evaluation,
        program=program,
        hip=hip,
        plan=plan,
        run=detail.run,
        trials=detail.trials,
        explanation=dict(explanation or {}),
        not_measured=tuple(not_measured),
        environment={"environment": evaluation.environment} if evaluation else {},
        seconds=detail.costs.get("wall_seconds", 0.0),
        evaluations=detail.summary.evaluations,
        note=note,
        models=None if models is None else dict(models),
        start=None if start is None else dict(start),
        counters=dict(counters or {}),
        saved=dict(saved or {}),
        gains=tuple(gains),
    )


def split(text: str) -> tuple[str, str]:
    """Splits a program into its HIP source and the rest of its file; ("", text) if there is no HIP literal."""
    try:
        body = syntax.parse(text).body
    except (SyntaxError, ValueError):
        return "", text
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _names_hip(node):
            lines = text.splitlines()
            rest = lines[: node.lineno - 1] + lines[node.end_lineno or node.lineno :]
            return str(node.value.value).strip("\n"), "\n".join(rest).strip("\n")
    return "", text


def _names_hip(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "HIP" for target in node.targets)
