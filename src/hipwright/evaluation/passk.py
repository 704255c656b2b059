"""pass@k: what k samples a task would give, estimated from n >= k of them.

The estimator is the unbiased one of Chen et al., "Evaluating Large Language Models Trained on Code" (2021): 1 - C(n-c,
k) / C(n, k), the share of the k-subsets of a task's n samples that hold one of its c good ones. Intervals are over the
tasks, since a benchmark samples tasks. The caller defines "good".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hipwright.measure.fastp import over_tasks


@dataclass(frozen=True)
class Samples:
    """One task: `good` of its `total` samples. Samples that were not judged (a provider's fault) count in neither."""

    good: int
    total: int


@dataclass(frozen=True)
class AtK:
    """An estimate for k samples a task: the mean over `tasks` tasks, with a 95 % interval over them.

    left_out: tasks with fewer than k samples, which do not count.
    """

    k: int
    value: float | None
    interval: tuple[float, float] | None
    tasks: int
    left_out: int


def pass_at_k(total: int, good: int, k: int) -> float:
    """The chance that k samples, drawn without replacement from `total`, hold one of the `good`. 1 <= k <= total."""
    if not 0 <= good <= total or not 1 <= k <= total:
        raise ValueError(f"no such estimate: {good} good of {total} samples at k = {k}")
    if total - good < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(total - good + 1, total + 1))


def at_k(tasks: Sequence[Samples], k: int, *, seed: int = 0) -> AtK:
    """The estimate over tasks. value and interval are None where no task has k samples."""
    enough = [task for task in tasks if task.total >= k]
    values = np.array([pass_at_k(task.total, task.good, k) for task in enough], dtype=np.float64)
    if not values.size:
        return AtK(k, None, None, 0, len(tasks))
    return AtK(k, float(values.mean()), interval(values, seed=seed), len(enough), len(tasks) - len(enough))


def curve(tasks: Sequence[Samples], samples: int, *, seed: int = 0) -> list[AtK]:
    """The estimates for k = 1 .. samples."""
    return [at_k(tasks, k, seed=seed) for k in range(1, samples + 1)]


def interval(values: np.ndarray, *, seed: int = 0) -> tuple[float, float]:
    """A 95 % interval of the mean of one value in [0, 1] a task, by a bootstrap over the tasks.

    Where all tasks agree the bootstrap's interval is a point, however few they are. There it is the exact one-sided
    bound for n of n (Clopper and Pearson, 1934): n tasks that all failed show only that the share is below 1 -
    0.05^(1/n).
    """
    mean = float(values.mean())
    if values.min() == values.max():
        reach = 1.0 - 0.05 ** (1.0 / values.size)
        return mean * (1.0 - reach), mean + (1.0 - mean) * reach
    low, high = over_tasks(values, lambda rows: rows.mean(axis=1), seed=seed)
    return min(low, mean), max(high, mean)


def per_solved(total: float, solved: int) -> float | None:
    """A sum over all tasks divided by the number of solved ones; None where none was solved."""
    return total / solved if solved else None
