"""A benchmark's figures with their denominators: compiled, correct, fast_p, means, coverage, the worst rows.

Denominators: every (task, sample) that was judged, failures and missing candidates included. Rows that the machine or a
broken task file ended were not judged and are counted apart. fast_p counts a row only when the lower bound of its
interval exceeds p; in KernelBench's mode its own rule, the plain speedup, stands beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from hipwright.evaluation.bench import BenchRow
from hipwright.measure.fastp import (
    FAILED,
    LEVELS,
    GeometricMean,
    TaskShare,
    TaskSpeedup,
    capped,
    fast_p,
    geometric_mean,
)

BASELINES = ("eager", "compile")
WORST = 10


def figures(rows: Sequence[BenchRow], *, kernelbench: bool = False) -> dict[str, Any]:
    """All figures as plain JSON types; a figure that was not measured is null, with the reason in `why_none`."""
    judged = [row for row in rows if row.judged]
    timed = [row for row in judged if row.timed_on]
    coverages = [row.coverage for row in judged if row.correct and row.coverage is not None]
    found: dict[str, Any] = {
        "tasks": len({row.task for row in rows}),
        "row_count": len(rows),
        "judged": len(judged),
        "not_judged": dict(Counter(row.fault or "" for row in rows if not row.judged)),
        "denominator": "judged rows: every task and sample, failures and missing candidates included",
        "compiled": _share(share_of(row.compiled for row in judged)),
        "correct": _share(share_of(row.correct for row in judged)),
        "statuses": dict(Counter(row.status for row in rows).most_common()),
        "coverage": {"mean": float(np.mean(coverages)) if coverages else None, "rows": len(coverages)},
        "timed": len(timed),
        "fast_p": None,
        "geometric_mean": None,
        "roofline_fraction": _roofline(timed),
        "worst": [row.key for row in worst(rows)],
        "categories": categories(judged),
        "why_none": {},
    }
    if any(row.by_format is not None for row in judged):
        found["by_format"] = _share(_by_format(judged))
    if kernelbench:
        found["strict_correct"] = _share(share_of(row.strict == "pass" for row in judged))
    if not timed:
        why = why_not_timed(rows)
        return found | {"why_none": {"fast_p": why, "geometric_mean": why, "roofline_fraction": why}}
    names = [name for name in BASELINES if any(name in row.speedups for row in timed)]
    names += sorted({name for row in timed for name in row.speedups} - set(BASELINES))
    found["fast_p"] = {name: _fast(judged, name) for name in names}
    found["geometric_mean"] = {name: _means(judged, name) for name in names}
    if kernelbench:
        found["fast_p_point"] = {name: _fast_point(judged, name) for name in names}
    return found


def categories(rows: Sequence[BenchRow]) -> dict[str, dict[str, Any]]:
    """The shares of each category, in order of their first rows; empty where no row has one. rows: the judged ones.

    by_format: None where no row was judged by its format's tolerance; fast_1: by baseline, None where none was timed.
    """
    groups: dict[str, list[BenchRow]] = {}
    for row in rows if any(row.category for row in rows) else ():
        groups.setdefault(row.category or "none", []).append(row)
    return {name: _category(group) for name, group in groups.items()}


def _category(rows: Sequence[BenchRow]) -> dict[str, Any]:
    names = [name for name in BASELINES if any(name in row.speedups for row in rows)]
    return {
        "tasks": len({row.task for row in rows}),
        "judged": len(rows),
        "compiled": _share(share_of(row.compiled for row in rows)),
        "correct": _share(share_of(row.correct for row in rows)),
        "by_format": _share(_by_format(rows)) if any(row.by_format is not None for row in rows) else None,
        "fast_1": {name: _fast(rows, name)["1"] for name in names} or None,
    }


def _by_format(rows: Sequence[BenchRow]) -> TaskShare:
    """The share of rows that are right by their format's own tolerance."""
    return share_of(row.by_format == "pass" for row in rows)


def results(rows: Iterable[BenchRow], baseline: str) -> list[TaskSpeedup]:
    """The rows in the form of `measure.fastp`: an incorrect or untimed one has no speedup."""
    found = []
    for row in rows:
        one = row.speedups.get(baseline) if row.correct else None
        found.append(TaskSpeedup(one.speedup, one.interval, one.at_roofline) if one else TaskSpeedup())
    return found


def share_of(flags: Iterable[bool]) -> TaskShare:
    """The share of true flags with Wilson's 95 % interval, which is not a point even where all or none are true."""
    values = list(flags)
    return TaskShare(sum(values), len(values), wilson(sum(values), len(values)))


def wilson(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share (E. B. Wilson, 1927); (0, 1) for no rows."""
    if not total:
        return 0.0, 1.0
    z = 1.959964
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def worst(rows: Sequence[BenchRow], count: int = WORST) -> list[BenchRow]:
    """The rows to look at first: judged failures, then the slowest against eager, or where nothing was timed the
    programs with the smallest coverage.
    """
    failures = [row for row in rows if row.judged and not row.correct]
    correct = [row for row in rows if row.judged and row.correct]
    return (failures + sorted(correct, key=_slowness))[:count]


def why_not_timed(rows: Sequence[BenchRow]) -> str:
    """The most frequent reason among the rows that passed, or among all."""
    reasons = [row.not_timed for row in rows if row.correct] or [row.not_timed for row in rows]
    return Counter(reasons).most_common(1)[0][0] if reasons else "there are no tasks"


def _slowness(row: BenchRow) -> tuple[int, float]:
    if "eager" in row.speedups:
        one = row.speedups["eager"]
        return 0, capped(TaskSpeedup(one.speedup, one.interval, one.at_roofline)) or 0.0
    return 1, row.coverage if row.coverage is not None else 1.0


def _fast(rows: Sequence[BenchRow], baseline: str) -> dict[str, Any]:
    found = results(rows, baseline)
    counts = {p: fast_p(found, p).count for p in LEVELS}
    return {f"{p:g}": _share(TaskShare(count, len(found), wilson(count, len(found)))) for p, count in counts.items()}


def _fast_point(rows: Sequence[BenchRow], baseline: str) -> dict[str, Any]:
    found = results(rows, baseline)
    return {f"{p:g}": _share(share_of((one.speedup or 0.0) > p for one in found)) for p in LEVELS}


def _means(rows: Sequence[BenchRow], baseline: str) -> dict[str, Any]:
    found = results(rows, baseline)
    return {
        "of_correct": _mean(geometric_mean(found)),
        "of_all": _mean(geometric_mean(found, failed=FAILED)),
        "failures_count_as": FAILED,
    }


def _roofline(rows: Sequence[BenchRow]) -> dict[str, Any] | None:
    known = [row.roofline_fraction for row in rows if row.correct and row.roofline_fraction is not None]
    return {"median": float(np.median(known)), "rows": len(known)} if known else None


def _share(share: TaskShare) -> dict[str, Any]:
    return {"count": share.count, "total": share.total, "share": share.share, "interval": list(share.interval)}


def _mean(mean: GeometricMean | None) -> dict[str, Any] | None:
    if mean is None:
        return None
    return {"value": mean.value, "interval": list(mean.interval), "rows": mean.tasks, "capped": mean.capped}
