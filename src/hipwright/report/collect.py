"""A run of the archive as the report's data."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright import __version__, syntax
from hipwright.archive import RunDetail
from hipwright.records import Evaluation, Task
from hipwright.report.data import ReportData


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
) -> ReportData:
    """Everything known of a run; `evaluation` is the one shown in full: the winner's, or the last failure's."""
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
    )


def split(text: str) -> tuple[str, str]:
    """A program's HIP source and the rest of its file; ("", text) when they cannot be told apart."""
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
