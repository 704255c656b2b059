"""A run of the archive as the report's data."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright import __version__
from hipwright.archive import RunLog
from hipwright.records import Evaluation, Program, Run, Task
from hipwright.report.data import Proposal, ReportData


def from_run(
    run: Run,
    log: RunLog,
    task: Task,
    program: Program | None,
    evaluation: Evaluation | None,
    *,
    command: str,
    explanation: Mapping[str, Any] | None = None,
    not_measured: Sequence[str] = (),
    note: str = "",
) -> ReportData:
    """Everything known of a run; evaluation is the one shown in full (the best's, or the last failure's)."""
    hip, plan = split(program.text) if program else ("", "")
    return ReportData(
        task=task,
        command=command,
        version=__version__,
        evaluation=evaluation,
        program=program,
        hip=hip,
        plan=plan,
        run=run,
        proposals=proposals(log),
        explanation=dict(explanation or {}),
        not_measured=tuple(not_measured),
        environment={"environment": evaluation.environment} if evaluation else {},
        seconds=sum(item.evaluation.seconds for item in log.evaluated.values()),
        evaluations=len(log.evaluated),
        note=note,
    )


def proposals(log: RunLog) -> tuple[Proposal, ...]:
    """Every proposal with how it ended, in order."""
    return tuple(_proposal(log, number) for number in sorted(log.proposed))


def _proposal(log: RunLog, number: int) -> Proposal:
    proposed, decision = log.proposed[number], log.decided.get(number)
    source = number if proposed.duplicate_of is None else proposed.duplicate_of
    evaluated = log.evaluated.get(source)
    evaluation = evaluated.evaluation if evaluated else None
    status = evaluation.status if evaluation else ("unscorable" if proposed.error else "not evaluated")
    if proposed.duplicate_of is not None:
        status = "duplicate"
    return Proposal(
        number=number,
        operator=proposed.expansion.operator,
        program=proposed.program,
        parents=proposed.expansion.parents,
        action=proposed.expansion.action,
        status=status,
        score=evaluation.score if evaluation and status == "pass" else None,
        coverage=evaluation.coverage if evaluation else 0.0,
        kept=bool(decision and decision.kept),
        best=bool(decision and decision.best),
        reason=decision.reason if decision else "",
        message=proposed.error or (evaluation.message if evaluation else ""),
        seconds=evaluation.seconds if evaluation and proposed.duplicate_of is None else 0.0,
    )


def split(text: str) -> tuple[str, str]:
    """A program's HIP source and the rest of its file; ("", text) when it cannot be told apart."""
    try:
        body = ast.parse(text).body
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
