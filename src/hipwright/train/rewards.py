"""Three reward functions of a group of outcomes (docs/rewards.md).

A group is the samples of one prompt and turn, in order. An outcome that is not scorable (the machine, the task or a
provider failed) has reward None in all of them, and is left out of baseline and gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, log, sqrt
from typing import Any, Protocol

from hipwright.errors import BadInput
from hipwright.train.records import AnswerOutcome, ScoredOutcome
from hipwright.train.shaping import shaping_value

CAP = 3.0
"""The speedup above which the published system's reward is constant."""
LAUNCH_MS = 0.002
"""The least time of a call: one launch, about 2 us on a current GPU. The roofline counts bytes and operations alone."""
HEADROOM = 1.1
"""Least ratio of baseline and roofline in the speed term; with a smaller one timing noise would be rewarded."""
SLOWEST = -0.3
"""Lower bound of the speed term, so that a slow correct program is worth more than a wrong one."""


class RewardFunction(Protocol):
    """A reward function of a group of outcomes. The rewards do not depend on the order of the group."""

    @property
    def name(self) -> str:
        """The name that `reward` takes."""
        ...

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """A scored outcome for each outcome, in order; its reward is None exactly where it is not scorable."""
        ...


def _check_weights(reward_name: str, weights: Mapping[str, float]) -> None:
    for name, value in weights.items():
        if not (isfinite(value) and value >= 0.0):
            raise BadInput(f"reward {reward_name}: {name} = {value} is no weight", hint="give a number from 0 up")


@dataclass(frozen=True)
class PublishedReward:
    """The published system's reward: 0 unless compiled and correct, else the speedup, at most `CAP`. From 0 to 3.

    The speedup is the median of the pairs, without its interval. A correct program that was not timed, or whose
    speedup is not finite, counts as 1. shaping: weight of the mean shaping term (shaping.py), for correct programs.
    """

    name: str = "source"
    cap: float = CAP
    shaping: float = 0.0

    def __post_init__(self) -> None:
        _check_weights(self.name, {"cap": self.cap, "shaping": self.shaping})

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """A scored outcome for each outcome, in order."""
        return [_scored(outcome, self._parts) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome) -> dict[str, float]:
        if not (outcome.compiled and is_right(outcome)):
            return {}
        parts = {"speedup": min(max(_positive(outcome.speedup) or 1.0, 0.0), self.cap)}
        if self.shaping:
            parts["shaping"] = self.shaping * shaping_value(outcome.metrics)
        return parts


@dataclass(frozen=True)
class MilestonesReward:
    """-1 no program, or not compiled; 1 compiled; 2 correct; 3 correct and faster than the baseline.

    Faster: the lower 95 % bound of the speedup is above 1. A proven hack counts as no program.
    """

    name: str = "milestones"

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """A scored outcome for each outcome, in order."""
        return [_scored(outcome, self._parts) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome) -> dict[str, float]:
        if outcome.hack or not outcome.compiled:
            return {"milestone": -1.0}
        if not is_right(outcome):
            return {"milestone": 1.0}
        bounds = interval(outcome)
        return {"milestone": 3.0 if bounds is not None and bounds[0] > 1.0 else 2.0}


@dataclass(frozen=True)
class HipwrightReward:
    """hipwright's reward: correctness, then the lower bound of the speedup relative to the roofline, then coverage.

    hack: the reward of a proven hack. A correct program has base + speed * phi * gate * own + coverage * share: see
    `phi`; gate is 1 where half of the group's scorable outcomes are correct, else 0; own is min(1, share / enough), so
    that speed from library calls is not rewarded; share is the outcome's coverage, and its bonus needs a lower bound
    of the speedup of at least 1. metrics: weights of AnswerOutcome.metrics (each clipped to [0, 1]), added to a correct
    program's reward. shaping: weight of the mean shaping term (shaping.py), times gate and own. The defaults give from
    -0.5 to 1.2, and at least 0.09 to any correct program.
    """

    name: str = "hipwright"
    hack: float = -0.5
    base: float = 0.3
    speed: float = 0.7
    coverage: float = 0.2
    enough: float = 0.25
    launch_ms: float = LAUNCH_MS
    metrics: Mapping[str, float] = field(default_factory=dict)
    shaping: float = 0.0

    def __post_init__(self) -> None:
        terms = {"base": self.base, "speed": self.speed, "coverage": self.coverage, "launch_ms": self.launch_ms}
        _check_weights(self.name, {**terms, "shaping": self.shaping, **self.metrics})
        if not (isfinite(self.hack) and self.hack <= 0.0):
            raise BadInput(f"reward {self.name}: hack = {self.hack} would reward a hack", hint="give 0 or less")
        if not (isfinite(self.enough) and 0.0 < self.enough <= 1.0):
            raise BadInput(
                f"reward {self.name}: enough = {self.enough} is no share", hint="give more than 0, at most 1"
            )
        if self.base + SLOWEST * self.speed <= 0.0:
            raise BadInput(
                f"reward {self.name}: a slow right program would earn no more than a wrong one",
                hint=f"base must exceed {-SLOWEST:g} times speed",
            )

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """A scored outcome for each outcome, in order."""
        known = [outcome for outcome in outcomes if outcome.scorable]
        opened = 2 * sum(map(is_right, known)) >= len(known)
        return [_scored(outcome, lambda one: self._parts(one, opened)) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome, opened: bool) -> dict[str, float]:
        if outcome.hack:
            return {"hack": self.hack}
        if not (outcome.compiled and is_right(outcome)):
            return {}
        share = min(1.0, max(0.0, outcome.coverage)) if isfinite(outcome.coverage) else 0.0
        gained = phi(outcome, self.launch_ms) if opened else 0.0
        own = min(1.0, share / self.enough)
        parts = {"correct": self.base, "speed": self.speed * gained * (own if gained > 0 else 1)}
        bounds = interval(outcome)
        if bounds is not None and bounds[0] >= 1.0:
            parts["coverage"] = self.coverage * share
        if self.shaping:
            parts["shaping"] = self.shaping * own * shaping_value(outcome.metrics) if opened else 0.0
        for name, weight in self.metrics.items():
            value = outcome.metrics.get(name, 0.0)
            parts[f"metric {name}"] = weight * min(1.0, max(0.0, value)) if isfinite(value) else 0.0
        return parts


RewardType = Callable[..., RewardFunction]
_REWARD_TYPES: dict[str, RewardType] = {
    "source": PublishedReward,
    "milestones": MilestonesReward,
    "hipwright": HipwrightReward,
}
REWARDS: dict[str, RewardFunction] = {name: make() for name, make in _REWARD_TYPES.items()}
"""The reward functions with their defaults, by name."""


def reward(name: str, **options: Any) -> RewardFunction:
    """The reward function of that name. options: fields of its class, in place of its defaults.

    Raises BadInput for an unknown name, an unknown option or a value out of range.
    """
    if name not in _REWARD_TYPES:
        raise BadInput(f"unknown reward {name!r}", hint=f"rewards: {', '.join(_REWARD_TYPES)}")
    try:
        return _REWARD_TYPES[name](**options)
    except TypeError:
        known = ", ".join(field for field in vars(REWARDS[name]) if field != "name") or "none"
        raise BadInput(f"reward {name!r} has no such option: {', '.join(options)}", hint=f"options: {known}") from None


def is_right(outcome: AnswerOutcome) -> bool:
    """Whether an outcome is scorable, correct and no hack."""
    return outcome.scorable and outcome.correct and not outcome.hack


def interval(outcome: AnswerOutcome) -> tuple[float, float] | None:
    """The speedup's 95 % interval in order; None where nothing was timed or a bound is not a positive number."""
    low, high = _positive(outcome.low), _positive(outcome.high)
    if not outcome.clock or low is None or high is None:
        return None
    return min(low, high), max(low, high)


def phi(outcome: AnswerOutcome, launch_ms: float = LAUNCH_MS) -> float:
    """The speed term: the lower bound of the speedup on a log scale from the baseline (0) to the roofline (1).

    log s / log(t_base / t_roofline), clipped to [-0.3, 1], with s the lower bound; 0 where the interval holds 1, since
    the comparison is then inconclusive. t_roofline is at least one launch; a ratio below `HEADROOM` counts as that,
    and an unknown one as `CAP`.
    """
    bounds = interval(outcome)
    if bounds is None or bounds[0] <= 1.0 <= bounds[1]:
        return 0.0
    return min(1.0, max(SLOWEST, log(bounds[0]) / log(headroom(outcome, launch_ms))))


def headroom(outcome: AnswerOutcome, launch_ms: float = LAUNCH_MS) -> float:
    """t_base / t_roofline with the limits of `phi`; more than 1."""
    base, floor = _positive(outcome.base_ms), _positive(outcome.floor_ms)
    if base is None or floor is None:
        return CAP
    return max(HEADROOM, base / max(floor, launch_ms))


class RewardClip:
    """Clips rewards to within `sigmas` standard deviations of the mean of the last `size` rewards.

    fewest: nothing is clipped before so many rewards are known. least: lower bound of the standard deviation, without
    which the first success after a hundred failures would be clipped to 0. The history holds unclipped rewards.
    """

    def __init__(self, sigmas: float = 1.5, size: int = 100, *, fewest: int = 20, least: float = 0.2) -> None:
        self.sigmas, self.fewest, self.least = sigmas, fewest, least
        self.clipped = 0  # rewards changed so far
        self._values: deque[float] = deque(maxlen=size)

    def clip(self, values: Iterable[float | None]) -> list[float | None]:
        """The values in order, clipped to the bounds of the history; None stays None. Extends the history."""
        values = list(values)
        low, high = self.bounds()
        found = [value if value is None else min(high, max(low, value)) for value in values]
        self.clipped += sum(old != new for old, new in zip(values, found, strict=True))
        self._values.extend(value for value in values if value is not None)
        return found

    def bounds(self) -> tuple[float, float]:
        """(lower, upper) bound of the next values."""
        count = len(self._values)
        if count < self.fewest:
            return float("-inf"), float("inf")
        mean = sum(self._values) / count
        sigma = sqrt(sum((value - mean) ** 2 for value in self._values) / count)
        reach = self.sigmas * max(sigma, self.least)
        return mean - reach, mean + reach

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, in plain JSON types."""
        return {"values": list(self._values), "clipped": self.clipped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores `state()`."""
        self._values.clear()
        self._values.extend(float(value) for value in state["values"])
        self.clipped = int(state["clipped"])


def _scored(outcome: AnswerOutcome, parts_of: Callable[[AnswerOutcome], dict[str, float]]) -> ScoredOutcome:
    if not outcome.scorable:
        return ScoredOutcome(outcome=outcome, reward=None)
    parts = parts_of(outcome)
    return ScoredOutcome(outcome=outcome, reward=float(sum(parts.values())), parts=parts)


def _positive(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value > 0.0 else None
