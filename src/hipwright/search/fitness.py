"""Compares the speed of two programs by intervals, never by points.

Measured: the program's time relative to one baseline, with the 95 % interval of the paired samples
(hipwright.measure.stats); a program is faster only when its interval lies wholly below the other's. The baseline is
`eager` where it was timed: every program of a run is timed in turn with it, so drift between evaluations cancels. The
ratio to `compile` is reported but does not rank, since a program may lack it. Figures against different baselines or
from different targets are never compared.

Estimated: repeating a static estimate gives the same figure, so its interval has no width; since the model cannot
separate near-equal programs, a relative margin (MODEL_NOISE) replaces the interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hipwright.records import Evaluation
from hipwright.targets import TARGETS

MODEL_NOISE = 0.02
"""Estimates closer than this (relative) are equal: rounding of occupancy and wave counts moves them this much."""

RANKED_BY = ("eager", "compile")
"""Baselines by preference: the first one that was timed ranks the program."""


@dataclass(frozen=True)
class Score:
    """Lower is faster.

    estimate: microseconds, low == high. measured: time relative to the baseline's, with its 95 % interval; basis then
    names the target and the baseline, and the device where it is simulated.
    """

    value: float
    low: float
    high: float
    kind: Literal["estimate", "measured"]
    basis: str = ""


def score(evaluation: Evaluation | None) -> Score | None:
    """Returns the score of a program that passed, else None."""
    if evaluation is None or not evaluation.passed:
        return None
    if evaluation.score_kind in ("measured", "simulated"):
        return _measured(evaluation)
    if evaluation.score is None:
        return None
    return Score(evaluation.score, evaluation.score, evaluation.score, "estimate")


def faster(candidate: Evaluation, incumbent: Evaluation, margin: float = MODEL_NOISE) -> bool:
    """Whether the candidate passed and is certainly faster; a measurement outranks an estimate."""
    new, old = score(candidate), score(incumbent)
    if new is None or old is None:
        return new is not None or (candidate.passed and not incumbent.passed)
    if new.kind != old.kind:
        return new.kind == "measured"
    if new.kind == "estimate":
        return new.value < old.value * (1.0 - margin)
    return new.basis == old.basis and new.high < old.low


def gain(candidate: Evaluation, incumbent: Evaluation) -> float:
    """The share of the incumbent's time that the candidate saves, for messages; 0.0 where they are not comparable."""
    new, old = score(candidate), score(incumbent)
    if new is None or old is None or (new.kind, new.basis) != (old.kind, old.basis) or not old.value:
        return 0.0
    return 1.0 - new.value / old.value


def _measured(evaluation: Evaluation) -> Score | None:
    """The ratio to the ranking baseline on the first measured target, an AMD GPU's before others."""
    timed = {name: result.timing for name, result in evaluation.targets.items() if result.timing is not None}
    for target in sorted(timed, key=lambda name: (not TARGETS.is_amd(name), name)):
        versus = timed[target].versus
        name = next((name for name in (*RANKED_BY, *sorted(versus)) if name in versus), None)
        if name is None:
            continue
        low, high = versus[name].interval
        if 0 < low <= high:
            on = timed[target].device if timed[target].simulated else target
            return Score(1.0 / versus[name].speedup, 1.0 / high, 1.0 / low, "measured", f"{on} against {name}")
    return None
