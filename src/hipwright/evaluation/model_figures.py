"""A model's figures in a benchmark: pass@k, compiled@k, fast_p@k, kinds of answers, cost.

A sample is a judged row: an answer without a program counts as not compiled. A row that a provider or this machine
ended is no sample; its task has that many fewer, and is left out where k needs more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.evaluation.bench import BenchRow
from hipwright.evaluation.figures import BASELINES
from hipwright.evaluation.passk import AtK, Samples, curve, per_solved
from hipwright.measure.fastp import LEVELS

Good = Callable[[BenchRow], bool]


def model_figures(rows: Sequence[BenchRow], samples: int) -> dict[str, Any]:
    """All figures as plain JSON types. samples: K, the rows that each task should have."""
    tasks = _by_task(rows)
    solved = sum(any(row.judged and row.correct for row in mine) for mine in tasks.values())
    return {
        "models": sorted({row.asked.model for row in rows if row.asked}),
        "samples": samples,
        "denominator": "pass@k: the mean over tasks with at least k judged samples; an answer without a program is a "
        "judged sample that did not compile; a provider's or the machine's fault is no sample",
        "pass_at": _curve(tasks, samples, lambda row: row.correct),
        "compiled_at": _curve(tasks, samples, lambda row: row.compiled),
        "fast_at": _fast(tasks, rows, samples),
        "solved": {"count": solved, "total": len(tasks)},
        "answers": dict(Counter(_answer(row) for row in rows if row.asked).most_common()),
        "mended": dict(Counter(one for row in rows if row.asked for one in row.asked.mended).most_common()),
        "cost": _cost(rows, solved),
    }


def _by_task(rows: Sequence[BenchRow]) -> dict[str, list[BenchRow]]:
    tasks: dict[str, list[BenchRow]] = {}
    for row in rows:
        if row.fault != "task":  # a task that does not load does not test the model
            tasks.setdefault(row.task, []).append(row)
    return tasks


def _curve(tasks: Mapping[str, Sequence[BenchRow]], samples: int, good: Good) -> dict[str, Any]:
    counted = []
    for mine in tasks.values():
        judged = [row for row in mine if row.judged]
        counted.append(Samples(sum(map(good, judged)), len(judged)))
    return {str(one.k): _plain(one) for one in curve(counted, samples)}


def _fast(tasks: Mapping[str, Sequence[BenchRow]], rows: Sequence[BenchRow], samples: int) -> dict[str, Any] | None:
    """{baseline: {p: {k: ...}}}: the lower bound of the best of k samples exceeds p. None where nothing was timed."""
    timed = {name for row in rows if row.timed_on for name in row.speedups}
    names = [name for name in BASELINES if name in timed] + sorted(timed - set(BASELINES))
    return {name: {f"{p:g}": _curve(tasks, samples, _faster(name, p)) for p in LEVELS} for name in names} or None


def _faster(baseline: str, p: float) -> Good:
    def good(row: BenchRow) -> bool:
        return row.correct and baseline in row.speedups and row.speedups[baseline].interval[0] > p

    return good


def _answer(row: BenchRow) -> str:
    assert row.asked is not None
    return row.asked.answer or f"none ({row.fault} at fault)"


def _cost(rows: Sequence[BenchRow], solved: int) -> dict[str, Any]:
    """The cost of every call of these rows, failed calls included. usd is null unless all models have a price."""
    asked = [row.asked for row in rows if row.asked is not None]
    unpriced = sorted({one.model for one in asked if one.calls and not one.priced})
    usd = None if unpriced else sum(one.cost_usd for one in asked)
    tokens = sum(one.input_tokens + one.output_tokens for one in asked)
    return {
        "usd": usd,
        "unpriced": unpriced,
        "calls": sum(one.calls for one in asked),
        "lost_calls": sum(one.lost for one in asked),
        "input_tokens": sum(one.input_tokens for one in asked),
        "output_tokens": sum(one.output_tokens for one in asked),
        "usd_per_solved": None if usd is None else per_solved(usd, solved),
        "tokens_per_solved": per_solved(tokens, solved),
    }


def _plain(one: AtK) -> dict[str, Any]:
    span = list(one.interval) if one.interval else None
    return {"value": one.value, "interval": span, "tasks": one.tasks, "left_out": one.left_out}
