"""The figures of the miniature's evaluation, with bootstrap intervals over tasks (docs/mini.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from hipwright.evaluation.passk import pass_at_k
from hipwright.measure.fastp import over_tasks
from hipwright.train.mini.tasks import HELD_OUT
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem

if TYPE_CHECKING:
    from hipwright.train.mini.settings import MiniEvaluationSettings

Drawn = dict[str, list[str]]
"""Task -> the short programs that one model wrote for it."""
Regret = dict[str, tuple[float, int]]
"""Task -> (least time of its schedule grid in milliseconds, schedules judged)."""
Reward = Callable[[Sequence[AnswerOutcome]], list[ScoredOutcome]]
Values = dict[str, dict[str, float]]
"""Metric -> task -> its mean over the scorable samples."""

METRICS = ("compiled", "correct", "fast_1", "fast_1.2", "roofline", "reward")
LEVEL_METRICS = ("compiled", "correct", "fast_1", "fast_1.2")
COMPARED = (
    ("sft", "base"),
    ("continued", "sft"),
    ("rft", "continued"),
    ("grpo", "continued"),
    ("grpo", "rft"),
    ("grpo", "sft"),
)
"""Pairs (better, worse) of arms that are compared; the names are expectations, and differences may be negative."""


def tables(
    problems: Sequence[TrainingProblem],
    drawn: Mapping[tuple[str, int], Drawn],
    outcomes: Mapping[tuple[str, str], AnswerOutcome],
    best: Regret,
    reward: Reward,
    settings: MiniEvaluationSettings,
) -> dict[str, Any]:
    """Arms, levels, comparisons, regret and examples of evaluation.json. A row with seed null is of all seeds."""
    arms = list(dict.fromkeys(arm for arm, _ in drawn))
    rows, pooled = [], dict[tuple[str, str], Values]()
    for arm, split in product(arms, HELD_OUT):
        tasks = [p for p in problems if p.split == split]
        seeds = {seed: _values(tasks, one, outcomes, reward) for (a, seed), one in drawn.items() if a == arm}
        pooled[arm, split] = _mean(list(seeds.values()))
        for seed, values in (*seeds.items(), *([(None, pooled[arm, split])] if len(seeds) > 1 else [])):
            rows.append({"arm": arm, "seed": seed, "split": split, "samples": settings.samples} | _row(values))
    return {
        "arms": rows,
        "levels": list(_levels(problems, arms, pooled)),
        "comparisons": list(_comparisons(arms, pooled)),
        "regret": [_regret(arm, drawn, outcomes, best) for arm in arms] if best else [],
        "examples": _examples(problems, drawn, outcomes, settings.examples),
    }


# ---------------------------------------------------------------- one arm


def _values(
    tasks: Sequence[TrainingProblem], drawn: Drawn, outcomes: Mapping[tuple[str, str], AnswerOutcome], reward: Reward
) -> Values:
    """Values by metric and task; "infra" has all tasks, the others those with a scorable sample."""
    found: Values = {name: {} for name in (*METRICS, "hack", "infra", "good", "known", "speedup")}
    for task in tasks:
        group = [outcomes[task.name, text] for text in drawn[task.name]]
        known = [one for one in group if one.scorable]
        found["infra"][task.name] = 1 - len(known) / len(group)
        if not known:
            continue
        right = [one for one in known if one.correct]
        rewards = [one.reward for one in reward(group) if one.reward is not None]
        values = {
            "compiled": _share(known, lambda one: one.compiled),
            "correct": _share(known, lambda one: one.correct),
            "fast_1": _share(known, lambda one: faster(one, 1.0)),
            "fast_1.2": _share(known, lambda one: faster(one, 1.2)),
            "hack": _share(known, lambda one: one.hack),
            "reward": sum(rewards) / len(rewards),
            "good": float(len(right)),
            "known": float(len(known)),
        }
        fractions = [f for one in right if (f := fraction(one)) is not None]
        if fractions:
            values["roofline"] = sum(fractions) / len(fractions)
        speedups = [log(one.speedup) for one in right if one.speedup]
        if speedups:
            values["speedup"] = sum(speedups) / len(speedups)
        for name, value in values.items():
            found[name][task.name] = value
    return found


def faster(outcome: AnswerOutcome, p: float) -> bool:
    """Whether a program is correct and the lower bound of its speedup exceeds p."""
    return outcome.correct and outcome.low is not None and outcome.low > p


def fraction(outcome: AnswerOutcome) -> float | None:
    """The share of the roofline that a correct program reaches; None where it is unknown."""
    if outcome.floor_ms and outcome.time_ms:
        return outcome.floor_ms / outcome.time_ms
    return outcome.metrics.get("roofline_fraction")


def _share(outcomes: Sequence[AnswerOutcome], good: Callable[[AnswerOutcome], bool]) -> float:
    return sum(map(good, outcomes)) / len(outcomes)


def _mean(seeds: Sequence[Values]) -> Values:
    """Each task's mean over the seeds with a value; counts are added."""
    found: Values = {}
    for name in seeds[0]:
        tasks = dict.fromkeys(task for values in seeds for task in values[name])
        found[name] = {}
        for task in tasks:
            known = [values[name][task] for values in seeds if task in values[name]]
            found[name][task] = sum(known) if name in ("good", "known") else sum(known) / len(known)
    return found


def _row(values: Values) -> dict[str, Any]:
    """Means over the tasks with their intervals, and pass@k."""
    row: dict[str, Any] = {"tasks": len(values["known"])}
    for name in METRICS:
        row[name] = interval(list(values[name].values()))
    speedup = interval(list(values["speedup"].values()))
    row["speedup"] = speedup and [exp(value) for value in speedup]
    for name in ("hack", "infra"):
        row[name] = _mean_value(list(values[name].values()))
    counts = [(int(values["known"][t]), int(values["good"][t])) for t in values["known"]]
    row["pass_at_k"] = {}
    for k in (1, 2, 4, 8):
        enough = [pass_at_k(total, good, k) for total, good in counts if total >= k]
        if enough and len(enough) == len(counts):
            row["pass_at_k"][str(k)] = sum(enough) / len(enough)
    return row


def _mean_value(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def interval(values: Sequence[float]) -> list[float] | None:
    """[mean, low, high] with a 95 % bootstrap interval over the tasks; None without values."""
    if not values:
        return None
    known = np.array(values, dtype=np.float64)
    low, high = over_tasks(known, lambda rows: rows.mean(axis=1))
    return [float(known.mean()), low, high]


def _levels(
    problems: Sequence[TrainingProblem], arms: Sequence[str], pooled: Mapping[tuple[str, str], Values]
) -> Iterator[dict[str, Any]]:
    """Means over the tasks of each number of operators, of all splits and seeds."""
    level_of = {p.name: int(p.facts["depth"]) for p in problems}
    for level, arm in product(sorted(set(level_of.values())), arms):
        row: dict[str, Any] = {"level": level, "arm": arm}
        for name in ("known", *LEVEL_METRICS):
            every = [pooled[arm, split][name].items() for split in HELD_OUT]
            values = [value for items in every for task, value in items if level_of[task] == level]
            row |= {"tasks": len(values)} if name == "known" else {name: interval(values)}
        yield row


# ---------------------------------------------------------------- between arms


def _comparisons(arms: Sequence[str], pooled: Mapping[tuple[str, str], Values]) -> Iterator[dict[str, Any]]:
    """Mean differences over the tasks of which both arms have a figure, of all seeds."""
    for (better, worse), split, metric in product(COMPARED, HELD_OUT, METRICS):
        if better in arms and worse in arms:
            one, other = pooled[better, split][metric], pooled[worse, split][metric]
            difference = interval([one[task] - other[task] for task in one if task in other])
            if difference is not None:
                yield {"split": split, "better": better, "worse": worse, "metric": metric, "difference": difference}


def _regret(
    arm: str, drawn: Mapping[tuple[str, int], Drawn], outcomes: Mapping[tuple[str, str], AnswerOutcome], best: Regret
) -> dict[str, Any]:
    """The ratio of time to the best schedule's, geometric means over tasks.

    ratio: of an arm's correct programs; best_of: of the fastest program of each task.
    """
    means, fastest = [], []
    for (name, _), one in drawn.items():
        for task, (least, _) in best.items() if name == arm else ():
            found = (outcomes[task, text] for text in one[task])
            times = [log(o.time_ms / least) for o in found if o.correct and o.time_ms]
            if times:
                means.append(sum(times) / len(times))
                fastest.append(min(times))
    return {
        "arm": arm,
        "tasks": len(means),
        "schedules": sum(count for _, count in best.values()),
        "ratio": _exp(interval(means)),
        "best_of": _exp(interval(fastest)),
    }


def _exp(values: list[float] | None) -> list[float] | None:
    return values and [exp(value) for value in values]


def _examples(
    problems: Sequence[TrainingProblem],
    drawn: Mapping[tuple[str, int], Drawn],
    outcomes: Mapping[tuple[str, str], AnswerOutcome],
    count: int,
) -> list[dict[str, Any]]:
    """The first sample of each arm and of the first seed, for `count` tasks of alternating splits."""
    turns = [[p for p in problems if p.split == split] for split in HELD_OUT]
    chosen = [some[n] for n in range(count) for some in turns if n < len(some)][:count]
    first = {arm: one for (arm, _), one in reversed(list(drawn.items()))}
    return [
        {
            "problem": p.name,
            "split": p.split,
            "source": p.source,
            "arms": {
                arm: {"completion": one[p.name][0], "outcome": outcomes[p.name, one[p.name][0]].to_dict()}
                for arm, one in reversed(list(first.items()))
            },
        }
        for p in chosen
    ]
