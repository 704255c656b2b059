"""Figures over a suite of tasks: fast_p, a capped geometric mean, and their intervals over the tasks.

The denominator is always every task that was attempted: a failure counts as not fast, and as speedup FAILED in the
geometric mean of all, which is why both means are given. A speedup is taken at most at the roofline of its task, so
that one absurd shape cannot carry the mean (cheat D10 in docs/measurement.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LEVELS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
FAILED = 0.1
"""The speedup of a task without a correct, trusted program in `GeometricMean.everything`."""


@dataclass(frozen=True)
class TaskSpeedup:
    """One task: the measured speedup with its 95 % interval, and the speedup at the roofline; None where it failed."""

    speedup: float | None = None
    interval: tuple[float, float] | None = None
    roofline_speedup: float | None = None


@dataclass(frozen=True)
class TaskShare:
    """count of total, with a 95 % interval of the share over the tasks."""

    count: int
    total: int
    interval: tuple[float, float]

    @property
    def share(self) -> float:
        """count / total, 0 for no tasks."""
        return self.count / self.total if self.total else 0.0


@dataclass(frozen=True)
class GeometricMean:
    """A geometric mean over `tasks` speedups with a 95 % interval over the tasks; capped: those cut at the roofline."""

    value: float
    interval: tuple[float, float]
    tasks: int
    capped: int


def fast_p(results: Sequence[TaskSpeedup], p: float, *, seed: int = 0) -> TaskShare:
    """The share of tasks whose program is correct and certainly faster than p times the baseline: the interval's lower
    bound is > p.
    """
    fast = np.array([r.interval is not None and r.interval[0] > p for r in results], dtype=np.float64)
    low, high = over_tasks(fast, lambda rows: rows.mean(axis=1), seed=seed) if fast.size else (0.0, 0.0)
    return TaskShare(int(fast.sum()), fast.size, (low, high))


def geometric_mean(
    results: Sequence[TaskSpeedup], *, failed: float | None = None, seed: int = 0
) -> GeometricMean | None:
    """The geometric mean of the capped speedups; failures are left out, or count as `failed`.

    None where nothing is left.
    """
    speedups = [capped(result) for result in results]
    values = [failed if one is None else one for one in speedups if one is not None or failed is not None]
    if not values:
        return None
    logs = np.log(np.array(values, dtype=np.float64))
    low, high = over_tasks(logs, lambda rows: rows.mean(axis=1), seed=seed)
    cut = sum(one is not None and one < (result.speedup or 0.0) for one, result in zip(speedups, results, strict=True))
    return GeometricMean(float(np.exp(logs.mean())), (float(np.exp(low)), float(np.exp(high))), logs.size, cut)


def capped(result: TaskSpeedup) -> float | None:
    """The speedup, at most the roofline's; None for a failure."""
    if result.speedup is None or result.speedup <= 0:
        return None
    return result.speedup if result.roofline_speedup is None else min(result.speedup, result.roofline_speedup)


def over_tasks(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """95 % bootstrap interval of `statistic` (rows of resampled values -> one figure a row) over the tasks."""
    index = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    low, high = np.quantile(statistic(values[index]), [0.025, 0.975])
    return float(low), float(high)
