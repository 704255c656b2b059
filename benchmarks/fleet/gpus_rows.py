"""Figures of the rows that runs on several numbers of GPUs stored: throughput, efficiency, and verdicts compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hipwright.evaluation.bench import ROWS, BenchRow
from hipwright.measure.fastp import over_tasks


def stored_rows(folder: Path) -> list[BenchRow]:
    """Every whole line that a benchmark wrote, in its order; more than one of a key where it was judged again."""
    path = folder / ROWS
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [BenchRow.from_json(line) for line in lines if line]


def throughput(rows: Sequence[BenchRow], seconds: float) -> dict[str, Any]:
    """What a run did in so many seconds."""
    judged = [row for row in rows if row.judged]
    worked = sum(row.seconds for row in rows)
    return {
        "rows": len(rows),
        "correct": sum(row.correct for row in judged),
        "statuses": dict(Counter(row.status for row in rows)),
        "tasks_a_minute": round(60 * len(judged) / seconds, 2) if seconds else None,
        "worker_s_a_task": round(worked / len(rows), 2) if rows else None,
        "waited_s_a_task": round(sum(row.waited for row in rows) / len(rows), 2) if rows else None,
        "device": next((row.device for row in rows if row.device), ""),
    }


def efficiency(one: Mapping[str, float], many: Mapping[str, float], seed: int = 0) -> dict[str, Any]:
    """Throughput a GPU of the second run over that of the first, by the tasks of both; 95 % bootstrap over tasks.

    one, many: by task, the seconds for which it held a worker, its waits included.
    """
    both = sorted(one.keys() & many.keys())
    if not both:
        return {"tasks": 0}
    first, second = (np.array([held[task] for task in both]) for held in (one, many))
    interval = over_tasks(np.arange(len(both)), lambda rows: first[rows].sum(1) / second[rows].sum(1), seed=seed)
    ratio = float(first.sum() / second.sum())
    return {"tasks": len(both), "efficiency": round(ratio, 3), "interval": [round(bound, 3) for bound in interval]}


def efficiencies(work: Path, gpus: Sequence[int]) -> dict[str, Any]:
    """Each run of `bench` against that on the fewest GPUs."""
    held = {
        count: {row.task: row.seconds + row.waited for row in stored_rows(work / f"bench-{count}") if row.judged}
        for count in gpus
    }
    first = min(gpus)
    return {"against": first, "of": {str(count): efficiency(held[first], held[count]) for count in gpus}}


def score_efficiencies(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each run of `score` against the first that has figures; wrong: programs whose verdict differs from that one's."""
    whole = [one for one in found if "programs_a_second" in one]
    if not whole:
        return {"failed": "no run of score has figures"}
    first = whole[0]
    each = first["programs_a_second"] / first["used"]
    of = {str(one["used"]): round(one["programs_a_second"] / one["used"] / each, 3) for one in whole}
    wrong = sum(a != b for one in whole for a, b in zip(first["verdicts"], one["verdicts"], strict=True))
    return {"against": first["used"], "of": of, "wrong": wrong}


def compared(rows: Sequence[BenchRow], asked: Sequence[str], known: Mapping[str, BenchRow]) -> dict[str, Any]:
    """A run's rows against what was asked for and the verdicts that are known by task.

    A row is wrong where both were judged and one is correct and the other is not. A row that a fault of the machine
    ended (`unjudged`) is no verdict, and counts neither as wrong nor as lost.
    """
    count = Counter(row.key for row in rows)
    of = {row.task: row for row in rows}
    both = [(of[task], known[task]) for task in asked if task in of and task in known]
    wrong = [a.task for a, b in both if a.judged and b.judged and a.correct != b.correct]
    return {
        "asked": len(asked),
        "lost": sum(task not in of for task in asked),
        "double": sum(many - 1 for many in count.values()),
        "wrong": len(wrong),
        "wrong_tasks": wrong,
        "compared": len(both),
        "unjudged": {row.task: f"{row.fault}: {row.message[:200]}" for row in rows if not row.judged},
        "tried_again": sum(row.attempts - 1 for row in rows),
    }
