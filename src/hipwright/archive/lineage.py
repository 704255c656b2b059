"""Ancestors of a program, and a run's programs as an indented tree."""

from __future__ import annotations

from hipwright.archive.log import Proposed, RunLog
from hipwright.records import Expansion


def by_program(log: RunLog) -> dict[str, Proposed]:
    """The first proposal of each program."""
    first: dict[str, Proposed] = {}
    for number in sorted(log.proposed):
        proposed = log.proposed[number]
        if proposed.evaluable:
            first.setdefault(proposed.program, proposed)
    return first


def origins(expansion: Expansion) -> tuple[str, ...]:
    """The keys an expansion was made from: its parents, or the failed program that it repairs."""
    failed = expansion.action.get("failed")
    return expansion.parents or ((str(failed),) if failed else ())


def ancestors(log: RunLog, program: str) -> list[Proposed]:
    """The chain of first parents of `program`, oldest first, itself last; [] for an unknown program."""
    first = by_program(log)
    line: list[Proposed] = []
    current = first.get(program)
    while current is not None and current not in line:
        line.append(current)
        parents = origins(current.expansion)
        current = first.get(parents[0]) if parents else None
    return line[::-1]


def tree(log: RunLog) -> list[str]:
    """The run's programs as an indented tree, one line each: number, operator, status, score, kept or not."""
    first = by_program(log)
    children: dict[str, list[Proposed]] = {}
    for proposed in first.values():
        parents = origins(proposed.expansion)
        parent = parents[0] if parents and parents[0] in first else ""
        # a parent is proposed earlier; this also prevents cycles in a damaged log
        if parent and first[parent].number >= proposed.number:
            parent = ""
        children.setdefault(parent, []).append(proposed)
    lines: list[str] = []
    pending = [(proposed, 0) for proposed in reversed(children.get("", []))]
    while pending:
        proposed, depth = pending.pop()
        lines.append("  " * depth + _line(log, proposed))
        pending.extend((child, depth + 1) for child in reversed(children.get(proposed.program, [])))
    return lines


def _line(log: RunLog, proposed: Proposed) -> str:
    evaluated = log.evaluated.get(proposed.number)
    decision = log.decided.get(proposed.number)
    if evaluated is None:
        outcome = "not evaluated"
    else:
        evaluation = evaluated.evaluation
        outcome = evaluation.status if evaluation.score is None else f"{evaluation.status} {evaluation.score:.4g}"
    mark = " best" if decision and decision.best else " kept" if decision and decision.kept else ""
    return f"#{proposed.number} {proposed.expansion.operator} {proposed.program[:8]}: {outcome}{mark}"
