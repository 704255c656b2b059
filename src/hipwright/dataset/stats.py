"""The figures of a data set, counted in one pass over its pairs."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median
from typing import Any

from hipwright.dataset.records import KINDS, Pair

HALF = 0.5
"""The least coverage of a task that counts as half covered."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS_A_DECADE = 4


def _counter() -> Counter[str]:
    return Counter()


@dataclass
class _Task:
    """What is kept of each task. engine, best: estimates in microseconds by target."""

    split: str
    composition: str
    pairs: int = 0
    correct: int = 0
    coverage: float = -1.0
    engine: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)


@dataclass
class DatasetTally:
    """Counts added pairs. Memory: a few numbers for each pair, no texts."""

    rows: int = 0
    repeated: int = 0
    by: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(_counter))
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)
    _coverage: array[float] = field(default_factory=lambda: array("d"))
    _sizes: dict[str, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    _estimates: dict[str, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    _builds: dict[str, dict[str, array[float]]] = field(default_factory=dict)

    def add(self, pair: Pair) -> None:
        """Count one pair."""
        self.rows += 1
        self.repeated += pair.key in self._keys
        self._keys.add(pair.key)
        self._add_task(pair)
        self.by["kinds"][pair.kind] += 1
        self.by["licences"][pair.licence] += 1
        self.by["correct" if pair.correct else "wrong"][pair.status] += 1
        self._sizes["program"].append(len(pair.program.text))
        if pair.timing is not None:
            self.by["timed"][f"{pair.timing.device} ({pair.timing.architecture})"] += 1
        for target, build in pair.builds.items():
            self.by[f"builds {target}"]["ok" if build.ok else "failed"] += 1
            self.by[f"builds {target}"]["right and failed"] += pair.correct and not build.ok
        if pair.correct:
            self._add_correct(pair)

    def _add_task(self, pair: Pair) -> None:
        task = self._tasks.get(pair.task)
        if task is None:
            task = self._tasks[pair.task] = _Task(pair.split, pair.composition)
            self._sizes["reference"].append(len(pair.task_source))
            for name, value in (("dtypes", pair.dtype), ("difficulty", pair.difficulty)):
                self.by[name][value or "unknown"] += 1
            self.by["families"].update(set(pair.families))
            self.by["operators"].update(set(pair.operators))
            self.by["operators a task"][str(len(pair.operators))] += 1
        task.pairs += 1
        task.correct += pair.correct
        self.by["rows of splits"][pair.split] += 1

    def _add_correct(self, pair: Pair) -> None:
        task = self._tasks[pair.task]
        task.coverage = max(task.coverage, pair.coverage)
        self._coverage.append(pair.coverage)
        for target, value in pair.estimate_us.items():
            self._estimates[target].append(value)
            task.best[target] = min(value, task.best.get(target, value))
            if pair.kind == "engine":
                task.engine[target] = value
        for target, build in pair.builds.items():
            if build.ok:
                one = self._builds.setdefault(target, defaultdict(lambda: array("d")))
                for name in ("vgpr", "sgpr", "lds_bytes", "scratch_bytes", "spills", "occupancy"):
                    one[name].append(getattr(build, name))

    def figures(self) -> dict[str, Any]:
        """All figures, in plain JSON types."""
        tasks = self._tasks.values()
        correct = self.by["correct"].total()
        return {
            "rows": self.rows,
            "tasks": len(self._tasks),
            "correct": correct,
            "wrong": self.rows - correct,
            "repeated": self.repeated,
            "kinds": {kind: self.by["kinds"][kind] for kind in KINDS if self.by["kinds"][kind]},
            "wrong_by_status": _sorted(self.by["wrong"]),
            "splits": self._splits(),
            "families": _sorted(self.by["families"]),
            "operators": _sorted(self.by["operators"]),
            "operators_a_task": {
                k: self.by["operators a task"][k] for k in sorted(self.by["operators a task"], key=int)
            },
            "dtypes": _sorted(self.by["dtypes"]),
            "difficulty": _sorted(self.by["difficulty"]),
            "tasks_verified": sum(task.correct > 0 for task in tasks),
            "tasks_half_covered": sum(task.coverage >= HALF for task in tasks),
            "pairs_a_task": quantiles([task.pairs for task in tasks]),
            "coverage": {"quantiles": quantiles(self._coverage), "bins": _tenths(self._coverage)},
            "builds": self._built(),
            "estimate_us": {t: {"quantiles": quantiles(v), "bins": log_bins(v)} for t, v in self._by_target()},
            "gain": {target: self._gain(target) for target, _ in self._by_target()},
            "timed": _sorted(self.by["timed"]),
            "licences": _sorted(self.by["licences"]),
            "characters": {name: quantiles(values) for name, values in sorted(self._sizes.items())},
        }

    def _by_target(self) -> list[tuple[str, array[float]]]:
        return sorted(self._estimates.items())

    def _splits(self) -> dict[str, dict[str, int]]:
        """By split, train first: rows, tasks, verified tasks, compositions, and how many of these are in train."""
        kinds: dict[str, set[str]] = defaultdict(set)
        for task in self._tasks.values():
            kinds[task.split].add(task.composition)
        train, found = kinds.get("train", set()) - {""}, {}
        for split in sorted(kinds, key=lambda name: (name != "train", name)):
            tasks = [task for task in self._tasks.values() if task.split == split]
            found[split] = {
                "rows": self.by["rows of splits"][split],
                "tasks": len(tasks),
                "tasks_verified": sum(task.correct > 0 for task in tasks),
                "compositions": len(kinds[split] - {""}),
                "compositions_in_train": len(kinds[split] & train),
            }
        return found

    def _built(self) -> dict[str, dict[str, Any]]:
        """By target: successful and failed builds, of all and of correct programs; resource use of the correct ones."""
        found = {}
        for target in sorted(name.removeprefix("builds ") for name in self.by if name.startswith("builds ")):
            used = self._builds.get(target, {})
            found[target] = {
                "ok": self.by[f"builds {target}"]["ok"],
                "failed": self.by[f"builds {target}"]["failed"],
                "right_ok": len(used.get("spills", ())),
                "right_failed": self.by[f"builds {target}"]["right and failed"],
                "spilling": sum(value > 0 for value in used.get("spills", ())),
                **{name: quantiles(values) for name, values in used.items() if name != "spills"},
            }
        return found

    def _gain(self, target: str) -> dict[str, Any]:
        """The ratio of the engine program's estimate to the best program's, over the tasks that have both."""
        both = [(t.engine.get(target, 0.0), t.best.get(target, 0.0)) for t in self._tasks.values()]
        ratios = [engine / best for engine, best in both if engine > 0 and best > 0]
        edges = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, float("inf"))
        bins = [
            {"low": low, "high": high if high < float("inf") else None, "count": sum(low <= r < high for r in ratios)}
            for low, high in pairwise(edges)
        ]
        return {"quantiles": quantiles(ratios), "bins": bins}


def dataset_figures(pairs: Iterable[Pair]) -> dict[str, Any]:
    """The figures of pairs, in plain JSON types."""
    found = DatasetTally()
    for pair in pairs:
        found.add(pair)
    return found.figures()


def quantiles(values: Iterable[float]) -> dict[str, Any]:
    """count, least, p5, p25, median, p75, p95, most and mean; only the count for no values."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    last = len(ordered) - 1
    found = {f"p{100 * q:.0f}": ordered[round(q * last)] for q in _QUANTILES if q != 0.5}
    extremes = {"least": ordered[0], "most": ordered[-1], "mean": sum(ordered) / len(ordered)}
    return {"count": len(ordered), "median": median(ordered), **found, **extremes}


def log_bins(values: Iterable[float]) -> list[dict[str, float]]:
    """Counts in bins of equal width on a logarithmic axis, four a decade, from the least value to the largest."""
    places = Counter(floor(_BINS_A_DECADE * log10(value) + 1e-9) for value in values if value > 0)
    if not places:
        return []
    return [
        {"low": 10 ** (k / _BINS_A_DECADE), "high": 10 ** ((k + 1) / _BINS_A_DECADE), "count": places[k]}
        for k in range(min(places), max(places) + 1)
    ]


def _tenths(values: Iterable[float]) -> list[dict[str, float]]:
    """Counts by tenths of coverage, upper ends included: the last bin holds 1.0, the first 0."""
    places = Counter(min(9, max(0, ceil(10 * value - 1e-9) - 1)) for value in values)
    return [{"low": k / 10, "high": (k + 1) / 10, "count": places[k]} for k in range(10)]


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first, then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
