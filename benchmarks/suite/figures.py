"""Figures of a suite from merged records. Nothing here measures; every denominator is the tasks attempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np

from benchmarks.suite.records import Against, Measured
from hipwright.evaluation.task_suite import TaskSuite
from hipwright.measure.fastp import GeometricMean, TaskShare, TaskSpeedup, fast_p, geometric_mean, over_tasks
from hipwright.measure.fit import (
    FEWEST,
    TimedProgram,
    cross_validated,
    features_from,
    fit,
    own_estimate,
    quality,
)
from hipwright.measure.traffic import Traffic

COMPILED = ("compile", "max-autotune")
BIG_BYTES = 256e6  # traffic above which a task that is bound by memory is held to a copy
SMALL_MS = 0.01  # a roofline below this: launching is what takes the time
GOOD_SHARE = 0.85
"""A first answer below this share of the roofline (or of a copy) leaves a gap that a search should close."""
STEPS = (1, 2, 4, 8, 16, 24, 32, 48, 60)


@dataclass(frozen=True)
class EstimateQuality:
    """How well microseconds rank programs. overall, within: Spearman's rank correlation over all programs, and the mean
    within a task; ratio: the median factor by which they are off."""

    programs: int
    tasks: int
    overall: float
    within: float | None
    ratio: float


@dataclass(frozen=True)
class Task:
    """A task's rows: the first answer, and what a search found. None where that stage was not measured."""

    name: str
    family: str
    first: Measured | None
    search: Measured | None

    @property
    def best(self) -> Measured | None:
        """The faster of the two that passed, as a user would keep it; else what there is."""
        rows = [row for row in (self.search, self.first) if row is not None]
        passed = [row for row in rows if row.passed]
        return min(passed, key=lambda row: row.median_ms or 0.0) if passed else next(iter(rows), None)


def tasks_of(rows: Sequence[Measured]) -> list[Task]:
    """Merged rows by task."""
    found: dict[str, dict[str, Measured]] = {}
    for row in rows:
        found.setdefault(row.task, {})[row.stage] = row
    return [
        Task(name, next(iter(by.values())).family, by.get("first"), by.get("search"))
        for name, by in sorted(found.items())
    ]


def versus(row: Measured | None, side: str) -> Against | None:
    """A passing row against "eager", a baseline, or "compiled": the faster of compile and max-autotune."""
    if row is None or not row.passed:
        return None
    if side != "compiled":
        return row.sides.get(side)
    return min((row.sides[n] for n in COMPILED if n in row.sides), key=lambda one: one.speedup, default=None)


def result(row: Measured | None, side: str) -> TaskSpeedup:
    """For fast_p and the geometric mean; a failure has no speedup."""
    found = versus(row, side)
    if found is None or row is None:
        return TaskSpeedup()
    roof = found.ms / row.floor_ms if row.floor_ms else None
    return TaskSpeedup(speedup=found.speedup, interval=found.interval, roofline_speedup=roof)


def mean(tasks: Sequence[Task], side: str) -> GeometricMean | None:
    """The geometric mean of the speedups that there are. Not capped at the roofline: it is our own suite, and data may
    stay in the cache for both sides."""
    return geometric_mean([TaskSpeedup(r.speedup, r.interval) for r in _comparable(tasks, side)])


def fast(tasks: Sequence[Task], side: str, p: float = 1.0) -> TaskShare:
    """Tasks whose interval lies above p, of all that could be compared or failed."""
    return fast_p(_comparable(tasks, side), p)


def not_faster(tasks: Sequence[Task]) -> list[str]:
    """Tasks whose interval against the faster of compile and max-autotune does not lie above 1, in order."""
    found = [(task.name, versus(task.best, "compiled")) for task in tasks]
    return [name for name, one in found if one is not None and one.interval[0] <= 1.0]


def _comparable(tasks: Sequence[Task], side: str) -> list[TaskSpeedup]:
    """A task that has no such baseline (torch.compile may refuse it) is left out; a failure stays."""
    return [result(t.best, side) for t in tasks if not (t.best and t.best.passed and versus(t.best, side) is None)]


# ---------------------------------------------------------------- the roofline


def memory_bound(row: Measured) -> bool:
    """Under 10 operations a byte, by what was counted."""
    return bool(row.bytes) and Traffic(row.bytes or 0, row.operations or 0.0).memory_bound


def held_to_copy(row: Measured | None) -> bool:
    """Bound by memory, with traffic enough that a copy is the measure."""
    return row is not None and row.passed and memory_bound(row) and (row.bytes or 0) > BIG_BYTES


def copy_share(row: Measured) -> float | None:
    """Share of the speed of a copy of equal bytes, timed in turn with it."""
    copy = row.sides.get("copy")
    return copy.speedup if copy else None


def share(row: Measured) -> float | None:
    """Share of the roofline: of the copy where memory bounds, else of the counted floor."""
    if memory_bound(row) and (found := copy_share(row)) is not None:
        return found
    return row.floor_ms / row.median_ms if row.floor_ms and row.median_ms else None


def shares(tasks: Sequence[Task], suite: TaskSuite) -> list[tuple[float, str, bool]]:
    """(share of the copy, task, whether it gathers) of the tasks that are held to it, the worst first."""
    rows = [t.best for t in tasks if held_to_copy(t.best)]
    found = [(one, row.task, suite.gathers(row.task)) for row in rows if row and (one := copy_share(row)) is not None]
    return sorted(found)


def small(tasks: Sequence[Task]) -> list[tuple[float, str]]:
    """(torch.compile's end-to-end latency / ours, task) of launch-bound tasks, the worst first."""
    rows = [t.best for t in tasks if t.best and t.best.passed and (t.best.floor_ms or 1.0) < SMALL_MS]
    found = [(one.latency_speedup, row.task) for row in rows if (one := versus(row, "compile"))]
    return sorted((ratio, name) for ratio, name in found if ratio is not None)


# ---------------------------------------------------------------- searches


def curve(row: Measured, steps: Sequence[int] = STEPS) -> list[float]:
    """Best speedup against eager after so many evaluations, relative to the first that passed."""
    speedups = [(trial.number, trial.speedup) for trial in row.trials if trial.speedup]
    if not speedups:
        return []
    base = speedups[0][1]
    return [max([s for n, s in speedups if n <= step], default=base) / base for step in steps]


def curves(tasks: Sequence[Task]) -> list[tuple[int, float, tuple[float, float]]]:
    """(evaluations, geometric mean of `curve`, its 95 % interval over the tasks)."""
    logs = np.log([found for t in tasks if t.search is not None and (found := curve(t.search))])
    if not logs.size:
        return []
    out = []
    for place, step in enumerate(STEPS):
        low, high = over_tasks(logs[:, place], lambda rows: rows.mean(axis=1))
        out.append((step, exp(float(logs[:, place].mean())), (exp(low), exp(high))))
    return out


def gaps(tasks: Sequence[Task]) -> list[tuple[float, str]]:
    """(share of the gap to the roofline that the search closed, task), where the first answer was under GOOD_SHARE."""
    found = []
    for task in tasks:
        first, after = task.first, task.search
        if first is None or after is None or not (first.passed and after.passed):
            continue
        before, now = share(first), share(after)
        if before is None or now is None or before >= GOOD_SHARE:
            continue
        # times relative to the roofline's: 1 / share; best never worse than the first answer, which is kept
        closed = (1 / before - 1 / max(now, before)) / (1 / before - 1)
        found.append((min(closed, 1.0), task.name))
    return sorted(found)


# ---------------------------------------------------------------- the estimate


def samples(rows: Sequence[Measured]) -> list[TimedProgram]:
    """Every measured program with an estimate for the same device, those of the searches included."""
    found: dict[tuple[str, float, float], TimedProgram] = {}
    for row in rows:
        pairs = [(row.estimated_us, row.detail, 1e3 * row.median_ms if row.median_ms else None)]
        pairs += [(trial.estimated_us, trial.detail, trial.microseconds) for trial in row.trials]
        for estimated, detail, measured in pairs:
            if estimated and measured and detail:
                raw = own_estimate(estimated, detail)
                found[row.task, raw, measured] = TimedProgram(row.task, features_from(raw, detail), raw, measured)
    return list(found.values())


def estimate_qualities(rows: Sequence[Measured]) -> dict[str, dict[str, EstimateQuality]]:
    """{device: {"estimate", "fitted, cross-validated" and "fitted, on its own data": quality}}.

    A device with fewer than two measured tasks is left out. `within` is None where no task has enough programs.
    """
    found: dict[str, dict[str, EstimateQuality]] = {}
    for device in sorted({row.device for row in rows if row.device}):
        programs = samples([row for row in rows if row.device == device])
        groups = Counter(one.group for one in programs)
        if len(groups) < 2:
            continue
        model = fit(programs, device)
        several = max(groups.values()) >= FEWEST
        microseconds = {
            "estimate": [one.estimated_us for one in programs],
            "fitted, cross-validated": cross_validated(programs, device),
            "fitted, on its own data": [model.microseconds(one.features, one.estimated_us) for one in programs],
        }
        found[device] = {name: _quality(programs, values, several) for name, values in microseconds.items()}
    return found


def _quality(programs: Sequence[TimedProgram], values: Sequence[float], several: bool) -> EstimateQuality:
    one = quality(programs, values)
    return EstimateQuality(one.samples, one.tasks, one.overall, one.within if several else None, one.ratio)


def median_of(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return median(values) if values else float("nan")


def log_mean(values: Sequence[float]) -> float:
    """The geometric mean; NaN of nothing."""
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")
