"""Rank correlations between estimates and times: of each task, their median and mean with intervals over tasks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

import numpy as np

from hipwright.measure.fit import spearman

FEWEST = 5
"""Programs of a task from which an order within it counts."""
APART = 1.03
"""Two programs whose times differ by less than this are left out of Kendall's pairs: noise may order them."""
DRAWS, SEED, LEVEL = 2000, 7, 95.0


def kendall(estimates: Sequence[float], times: Sequence[float]) -> float | None:
    """(right - wrong) / pairs whose times are APART; a pair of equal estimates is half right. None without a pair."""
    score, pairs = 0.0, 0
    for (a, x), (b, y) in itertools.combinations(zip(estimates, times, strict=True), 2):
        if max(x, y) < APART * min(x, y):
            continue
        pairs += 1
        score += 0.0 if a == b else 1.0 if (a < b) == (x < y) else -1.0
    return score / pairs if pairs else None


def task_figures(row: Mapping[str, Any], which: str) -> dict[str, Any] | None:
    """{"programs", "spread", "spearman", "kendall"} of a task by one of the estimates; None with too few programs, or
    where no two times are APART. spread: the slowest program's time over the fastest's."""
    known = [one for one in row.get("programs", ()) if one.get(which) is not None]
    times = [one["us"] for one in known]
    if len(known) < FEWEST or max(times) < APART * min(times):
        return None
    estimates = [one[which] for one in known]
    spread = max(times) / min(times)
    both = {"spearman": spearman(estimates, times), "kendall": kendall(estimates, times)}
    return {"programs": len(known), "spread": spread, **both}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % bootstrap interval of the mean over tasks."""
    drawn = np.random.default_rng(SEED).choice(np.asarray(values), (DRAWS, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def summary(rows: Sequence[Mapping[str, Any]], which: str) -> dict[str, Any] | None:
    """{"tasks", "programs", "mean", "interval", "median", "kendall"} over the tasks that have figures."""
    found = [one for row in rows if (one := task_figures(row, which))]
    if not found:
        return None
    values = [one["spearman"] for one in found]
    return {
        "tasks": len(found),
        "programs": sum(one["programs"] for one in found),
        "mean": mean(values),
        "interval": interval(values),
        "median": median(values),
        "kendall": mean(one["kendall"] for one in found),
    }


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each task, then the sums."""
    lines = []
    for row in rows:
        found = task_figures(row, "simulated_us")
        if found is None:
            why = row.get("failed") or "too few programs, or times too near to one another"
            lines.append(f"{row['task']:48} {why}")
            continue
        other = task_figures(row, "static_us")
        static = f"{other['spearman']:6.2f}" if other else "     -"
        head = f"{row['task']:48} {found['programs']:3} programs, {found['spread']:6.2f} times apart"
        lines.append(f"{head}: simulated {found['spearman']:5.2f}, Kendall {found['kendall']:5.2f}; static {static}")
    devices = ", ".join(sorted({row["device"] for row in rows if "device" in row}))
    for which, name in (("simulated_us", "simulated"), ("static_us", "static")):
        if total := summary(rows, which):
            low, high = total["interval"]
            lines.append(
                f"{name}: rank correlation within a task {total['mean']:.2f} [{low:.2f}, {high:.2f}], median "
                f"{total['median']:.2f}, Kendall {total['kendall']:.2f}; {total['programs']} programs of "
                f"{total['tasks']} tasks on {devices}"
            )
    return "".join(f"{line}\n" for line in lines)
