"""The data of an ablation: arms, outcomes of their runs, and their comparison with intervals.

Every arm gets the same budget of evaluations on each task and seed. An outcome is a curve: the best verified score
after 1, 2, ... evaluations. Arms are compared by the ratio of their last points, paired over tasks and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import median
from typing import Any, Literal

from hipwright.archive import RunLog
from hipwright.errors import BadInput
from hipwright.records import Record

SINGLE_SHOT, BEST_OF_N, PIPELINE, PLAIN = "single-shot", "best-of-n", "pipeline", "plain"
ARMS = (SINGLE_SHOT, BEST_OF_N, PIPELINE, PLAIN)
"""single-shot: the first program only. best-of-n: independent programs. plain: the policy with bare operators."""
CLOSE = 1.05
"""A score within 5 % of the best that any arm found for the task counts as reached."""
RESAMPLES = 4000


class Arm(Record, frozen=True, kw_only=True):
    """One way to search. policy: selects parents. without: roles switched off."""

    name: str
    kind: Literal["single-shot", "best-of-n", "pipeline", "plain"]
    policy: str = "islands"
    without: tuple[str, ...] = ()


class ArmOutcome(Record, frozen=True, kw_only=True):
    """The outcome of one run. curve: the best verified score after each evaluation, None before the first.

    evaluations: used by the run; failed: of programs that did not pass. known: the run was finished before. profiles:
    made for counters, each paid with an evaluation of the budget; profile_seconds: that they took, failed ones too.
    """

    task: str
    arm: str
    seed: int
    run: str
    curve: tuple[float | None, ...]
    score_kind: str = "none"
    evaluations: int = 0
    failed: int = 0
    duplicates: int = 0
    cached: int = 0
    seconds: float = 0.0
    known: bool = False
    profiles: int = 0
    profile_seconds: float = 0.0

    @property
    def best(self) -> float | None:
        """The last point of the curve."""
        return self.curve[-1] if self.curve else None


class ArmRow(Record, frozen=True, kw_only=True):
    """One arm of the table. ratio: geometric mean of its best over the reference arm's (below 1 is better).

    interval: 95 % bootstrap over tasks, and seeds within tasks; pairs: the number of pairs. reached: runs within 5 % of
    the best known for their task, of `runs`; after: the median number of evaluations until then over all runs, None
    where most never reached it. excess: geometric mean of best / best known after each evaluation, over the runs with a
    verified program by then.
    """

    arm: str
    runs: int
    pairs: int
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    reached: int = 0
    after: float | None = None
    failed: int = 0
    nothing: int = 0
    excess: tuple[float | None, ...] = ()


class Ablation(Record, frozen=True, kw_only=True):
    """The whole comparison. notes: conditions to report (initial contents of the archive, kind of score)."""

    tasks: tuple[str, ...]
    seeds: int
    budget: int
    targets: tuple[str, ...]
    reference: str
    score_kind: str
    rows: tuple[ArmRow, ...]
    outcomes: tuple[ArmOutcome, ...] = ()
    notes: tuple[str, ...] = ()


def arms(names: Sequence[str], without: Sequence[str], policies: Sequence[str]) -> list[Arm]:
    """The arms of a command line: each name, the pipeline without each role, the pipeline by each further policy."""
    found: list[Arm] = []
    first = policies[0] if policies else "islands"
    for name in names:
        if name not in ARMS:
            raise BadInput(f"unknown arm {name!r}", hint=f"arms: {', '.join(ARMS)}")
        policy = "best_of_n" if name in (SINGLE_SHOT, BEST_OF_N) else first
        found.append(Arm(name=name, kind=name, policy=policy))  # type: ignore[arg-type]
    found += [Arm(name=f"{PIPELINE} without {r}", kind="pipeline", policy=first, without=(r,)) for r in without]
    found += [Arm(name=f"{PIPELINE} by {p}", kind="pipeline", policy=p) for p in policies[1:]]
    return list({arm.name: arm for arm in found}.values())


def outcome(log: RunLog, *, task: str, arm: str, seed: int, run: str, budget: int, known: bool) -> ArmOutcome:
    """Turns a run's log into a curve of `budget` points; a run that ended early keeps its last score."""
    evaluated = [log.evaluated[number] for number in sorted(log.evaluated)]
    curve: list[float | None] = []
    best: float | None = None
    unpaid = sorted(one.round for one in log.counted.values() for _ in range(one.cost))
    for number in sorted(log.evaluated):
        while unpaid and unpaid[0] <= log.proposed[number].round:
            unpaid.pop(0)
            curve.append(best)  # a profile is paid like evaluations, before those of its round
        evaluation = log.evaluated[number].evaluation
        score = evaluation.score if evaluation.passed else None
        if score is not None and (best is None or score < best):
            best = score
        curve.append(best)
    curve = (curve + [best] * budget)[:budget]
    return ArmOutcome(
        task=task,
        arm=arm,
        seed=seed,
        run=run,
        curve=tuple(curve),
        score_kind=next((e.evaluation.score_kind for e in evaluated if e.evaluation.passed), "none"),
        evaluations=len(evaluated),
        failed=sum(not e.evaluation.passed for e in evaluated),
        duplicates=sum(p.duplicate_of is not None for p in log.proposed.values()),
        cached=sum(e.cached for e in evaluated),
        seconds=round(sum(e.evaluation.seconds for e in evaluated if not e.cached), 2),
        known=known,
        profiles=sum(one.profiled for one in log.counted.values()),
        profile_seconds=round(sum(one.seconds for one in log.counted.values()), 2),
    )


def table(
    outcomes: Sequence[ArmOutcome],
    names: Sequence[str],
    reference: str,
    seed: int = 0,
    known: Mapping[str, float] | None = None,
) -> list[ArmRow]:
    """Returns a row per arm, compared with the reference arm. known: the best scores of tasks that are known before."""
    best_known = dict(known or {})
    for one in outcomes:
        if one.best is not None:
            best_known[one.task] = min(one.best, best_known.get(one.task, one.best))
    by_arm = {name: [o for o in outcomes if o.arm == name] for name in names}
    base = {(o.task, o.seed): o.best for o in by_arm[reference]}
    return [_row(name, by_arm[name], base, best_known, seed) for name in names]


def _row(
    name: str,
    outcomes: Sequence[ArmOutcome],
    base: Mapping[tuple[str, int], float | None],
    best_known: Mapping[str, float],
    seed: int,
) -> ArmRow:
    logs: dict[str, list[float]] = {}
    for one in outcomes:
        other = base.get((one.task, one.seed))
        if one.best is not None and other is not None:
            logs.setdefault(one.task, []).append(log(one.best / other))
    ratio, interval = mean_ratio(logs, seed)
    steps = [_steps(one, best_known.get(one.task)) for one in outcomes]
    after = median([float("inf") if s is None else s for s in steps]) if steps else float("inf")
    return ArmRow(
        arm=name,
        runs=len(outcomes),
        pairs=sum(len(values) for values in logs.values()),
        ratio=ratio,
        interval=interval,
        reached=sum(s is not None for s in steps),
        after=None if after == float("inf") else after,
        failed=sum(one.failed for one in outcomes),
        nothing=sum(one.best is None for one in outcomes),
        excess=_excess(outcomes, best_known),
    )


def mean_ratio(logs: Mapping[str, Sequence[float]], seed: int) -> tuple[float | None, tuple[float, float] | None]:
    """exp of the mean over tasks of the mean over seeds; the interval resamples tasks, then seeds within tasks.

    logs: logarithms of ratios, a sequence of seeds for each task. (None, None) without any.
    """
    if not logs:
        return None, None
    import numpy as np

    values = [np.array(logs[task]) for task in sorted(logs)]
    ratio = exp(float(np.mean([v.mean() for v in values])))
    rng = np.random.default_rng(seed)
    # means of resampled seeds for each task, shape (tasks, resamples); then one task drawn for each place
    means = np.stack([rng.choice(v, (RESAMPLES, v.size)).mean(axis=1) for v in values])
    drawn = rng.integers(0, len(values), (len(values), RESAMPLES))
    low, high = np.quantile(means[drawn, np.arange(RESAMPLES)].mean(axis=0), [0.025, 0.975])
    return ratio, (exp(float(low)), exp(float(high)))


def _steps(one: ArmOutcome, best: float | None) -> int | None:
    """The number of evaluations until within 5 % of the best known; None if never."""
    if best is None:
        return None
    return next((n for n, score in enumerate(one.curve, 1) if score is not None and score <= CLOSE * best), None)


def _excess(outcomes: Sequence[ArmOutcome], best_known: Mapping[str, float]) -> tuple[float | None, ...]:
    columns: list[float | None] = []
    for place in range(max((len(o.curve) for o in outcomes), default=0)):
        logs = [log(score / best_known[o.task]) for o in outcomes if (score := o.curve[place]) is not None]
        columns.append(round(exp(sum(logs) / len(logs)), 4) if logs else None)
    return tuple(columns)


def csv(ablation: Ablation) -> str:
    """One CSV line per run: task, arm, seed, counts, best, and the curve in columns."""
    head = ["task", "arm", "seed", "run", "evaluations", "failed", "duplicates", "cached", "score_kind", "best"]
    lines = [[*head, *(f"after_{n}" for n in range(1, ablation.budget + 1))]]
    for o in ablation.outcomes:
        fields: list[Any] = [o.task, o.arm, o.seed, o.run, o.evaluations, o.failed, o.duplicates, o.cached]
        figures = [o.best, *o.curve]
        lines.append([str(f) for f in (*fields, o.score_kind)] + ["" if f is None else f"{f:.6g}" for f in figures])
    return "".join(",".join(f'"{f}"' if "," in f else f for f in line) + "\n" for line in lines)
