"""When one program counts as faster than another.

A figure is an interval, never a point. Where programs were timed, the interval is the 95 % one of the paired samples
(hipwright.measure.stats), and a program is faster only when its interval lies wholly below the other's. The figure is
the program's time over that of one baseline, `eager` where it was timed: every program of a run is measured against it
in turn with it, so drift between two evaluations cancels. The ratio to `compile` is reported and never ranks: it takes
seconds to compile, and a program without it could not be compared. Figures against different baselines, or from
different targets, are never compared. Where only the
static estimate is known, repeating it would give the same figure, so the interval has no width; but the model cannot
tell near-equal programs apart, so a relative margin, the model-noise band, stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hipwright.records import Evaluation
from hipwright.targets import TARGETS

MODEL_NOISE = 0.02
"""Estimates closer than this (relative) are equal: the rounding of occupancy and wave counts moves them as much."""

RANKED_BY = ("eager", "compile")
"""Baselines by preference; the first that was timed ranks the program."""


@dataclass(frozen=True)
class Score:
    """Lower is faster.

    estimate: microseconds, low == high. measured: time relative to the baseline's, with its 95 % interval; basis then
    names the target and the baseline.
    """

    value: float
    low: float
    high: float
    kind: Literal["estimate", "measured"]
    basis: str = ""


def score(evaluation: Evaluation | None) -> Score | None:
    """The score of a program that passed, else None: what failed, crashed or timed out has no score."""
    if evaluation is None or not evaluation.passed:
        return None
    if evaluation.score_kind == "measured":
        return _measured(evaluation)
    if evaluation.score is None:
        return None
    return Score(evaluation.score, evaluation.score, evaluation.score, "estimate")


def faster(candidate: Evaluation, incumbent: Evaluation, margin: float = MODEL_NOISE) -> bool:
    """True when the candidate passed and is certainly faster: of unequal kinds, the measured one is believed."""
    new, old = score(candidate), score(incumbent)
    if new is None or old is None:
        return new is not None or (candidate.passed and not incumbent.passed)
    if new.kind != old.kind:
        return new.kind == "measured"
    if new.kind == "estimate":
        return new.value < old.value * (1.0 - margin)
    return new.basis == old.basis and new.high < old.low


def gain(candidate: Evaluation, incumbent: Evaluation) -> float:
    """Share of the incumbent's time that the candidate saves, for reasons in words; 0.0 where either has no score."""
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
            return Score(1.0 / versus[name].speedup, 1.0 / high, 1.0 / low, "measured", f"{target} against {name}")
    return None
