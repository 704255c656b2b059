"""What an outcome is worth: three reward functions over one group of outcomes (docs/rewards.md).

A group is the samples of one prompt and turn, in order. An outcome that is not scorable (the machine, the task or a
provider failed) has reward None in all of them: it belongs in no baseline and no gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, log, sqrt
from typing import Any, Protocol

from hipwright.errors import BadInput
from hipwright.train.records import AnswerOutcome, ScoredOutcome

CAP = 3.0
"""Speedup at which the published system's reward stops growing."""
LAUNCH_MS = 0.002
"""No call is shorter than one launch, about 2 us on a current GPU; the roofline counts bytes and operations alone."""
HEADROOM = 1.1
"""Least ratio of baseline and roofline that speed is scaled by: a baseline that is there already leaves nothing to win,
and timing noise must not look like everything."""
SLOWEST = -0.3
"""Lower bound of the speed term: slow and right must stay better than wrong."""


class RewardFunction(Protocol):
    """A reward function of a group; order of the outcomes is kept, and does not matter."""

    @property
    def name(self) -> str:
        """As `reward` takes it."""
        ...

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """One Scored an outcome; reward None exactly where the outcome is not scorable."""
        ...


@dataclass(frozen=True)
class PublishedReward:
    """The published system's: 0 unless compiled and correct, else the speedup, at most `CAP`. From 0 to 3.

    The speedup is the median of pairs, as it comes: no interval, no roofline. A right program that nothing has timed
    counts as fast as the baseline (1); so does one whose figure is not finite.
    """

    name: str = "source"
    cap: float = CAP

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """One Scored an outcome."""
        return [_scored(outcome, self._parts) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome) -> dict[str, float]:
        if not (outcome.compiled and right(outcome)):
            return {}
        return {"speedup": min(max(_positive(outcome.speedup) or 1.0, 0.0), self.cap)}


@dataclass(frozen=True)
class Milestones:
    """-1 no program, or not compiled; 1 compiled; 2 correct; 3 correct and faster than the baseline.

    Faster: the lower 95 % bound of the speedup is above 1. A proven hack counts as no program.
    """

    name: str = "milestones"

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """One Scored an outcome."""
        return [_scored(outcome, self._parts) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome) -> dict[str, float]:
        if outcome.hack or not outcome.compiled:
            return {"milestone": -1.0}
        if not right(outcome):
            return {"milestone": 1.0}
        bounds = interval(outcome)
        return {"milestone": 3.0 if bounds is not None and bounds[0] > 1.0 else 2.0}


@dataclass(frozen=True)
class Hipwright:
    """Ours: correctness first, then speed that is certain, measured on the way to the roofline, then own kernels.

    hack: of a proven one. base + speed * phi * gate * own + coverage * share: see `phi`; gate is 1 once half of the
    group's scorable outcomes are correct; own is min(1, coverage / enough), so that speed which a library call gave is
    not paid for; the coverage bonus needs a lower bound of the speedup of at least 1. metrics: weights of
    Outcome.metrics (each clipped to [0, 1]), added to a correct program's reward.
    Defaults give from -0.5 to 1.2, and at least 0.09 to any correct program.
    """

    name: str = "hipwright"
    hack: float = -0.5
    base: float = 0.3
    speed: float = 0.7
    coverage: float = 0.2
    enough: float = 0.25
    launch_ms: float = LAUNCH_MS
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms = {"base": self.base, "speed": self.speed, "coverage": self.coverage, "launch_ms": self.launch_ms}
        for name, value in {**terms, **self.metrics}.items():
            if not (isfinite(value) and value >= 0.0):
                raise BadInput(f"reward {self.name}: {name} = {value} is no weight", hint="give a number from 0 up")
        if not (isfinite(self.hack) and self.hack <= 0.0):
            raise BadInput(f"reward {self.name}: hack = {self.hack} would pay for a hack", hint="give 0 or less")
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
        """One Scored an outcome."""
        known = [outcome for outcome in outcomes if outcome.scorable]
        opened = 2 * sum(map(right, known)) >= len(known)
        return [_scored(outcome, lambda one: self._parts(one, opened)) for outcome in outcomes]

    def _parts(self, outcome: AnswerOutcome, opened: bool) -> dict[str, float]:
        if outcome.hack:
            return {"hack": self.hack}
        if not (outcome.compiled and right(outcome)):
            return {}
        share = min(1.0, max(0.0, outcome.coverage)) if isfinite(outcome.coverage) else 0.0
        gained = phi(outcome, self.launch_ms) if opened else 0.0
        parts = {
            "correct": self.base,
            "speed": self.speed * gained * (min(1.0, share / self.enough) if gained > 0 else 1),
        }
        bounds = interval(outcome)
        if bounds is not None and bounds[0] >= 1.0:
            parts["coverage"] = self.coverage * share
        for name, weight in self.metrics.items():
            value = outcome.metrics.get(name, 0.0)
            parts[f"metric {name}"] = weight * min(1.0, max(0.0, value)) if isfinite(value) else 0.0
        return parts


Maker = Callable[..., RewardFunction]
_MAKERS: dict[str, Maker] = {"source": PublishedReward, "milestones": Milestones, "hipwright": Hipwright}
REWARDS: dict[str, RewardFunction] = {name: make() for name, make in _MAKERS.items()}
"""Every reward with its own defaults, by name."""


def reward(name: str, **options: Any) -> RewardFunction:
    """The reward of that name with other options than its defaults (the fields of its class).

    BadInput for an unknown name, an unknown option or a value out of range.
    """
    if name not in _MAKERS:
        raise BadInput(f"unknown reward {name!r}", hint=f"rewards: {', '.join(_MAKERS)}")
    try:
        return _MAKERS[name](**options)
    except TypeError:
        known = ", ".join(field for field in vars(REWARDS[name]) if field != "name") or "none"
        raise BadInput(f"reward {name!r} has no such option: {', '.join(options)}", hint=f"options: {known}") from None


def right(outcome: AnswerOutcome) -> bool:
    """Scorable, correct, and not by a hack."""
    return outcome.scorable and outcome.correct and not outcome.hack


def interval(outcome: AnswerOutcome) -> tuple[float, float] | None:
    """The speedup's 95 % interval in order; None where nothing was timed or a bound is not a positive number."""
    low, high = _positive(outcome.low), _positive(outcome.high)
    if not outcome.clock or low is None or high is None:
        return None
    return min(low, high), max(low, high)


def phi(outcome: AnswerOutcome, launch_ms: float = LAUNCH_MS) -> float:
    """Certain speed on a log scale from the baseline (0) to the roofline (1), within [-0.3, 1].

    log s / log(t_base / t_roofline) with s the lower bound of the speedup; 0 while the interval holds 1, which is where
    a paired comparison shows nothing. t_roofline is at least one launch; a ratio below `HEADROOM` counts as that, and
    an unknown one as `CAP`.
    """
    bounds = interval(outcome)
    if bounds is None or bounds[0] <= 1.0 <= bounds[1]:
        return 0.0
    return min(1.0, max(SLOWEST, log(bounds[0]) / log(headroom(outcome, launch_ms))))


def headroom(outcome: AnswerOutcome, launch_ms: float = LAUNCH_MS) -> float:
    """t_base / t_roofline as `phi` uses it; more than 1."""
    base, floor = _positive(outcome.base_ms), _positive(outcome.floor_ms)
    if base is None or floor is None:
        return CAP
    return max(HEADROOM, base / max(floor, launch_ms))


class Clip:
    """Rewards clipped to within `sigmas` standard deviations of the mean of the last `size`.

    Until `fewest` are known nothing is clipped. least: the standard deviation counts as no smaller, or the first
    success after a hundred failures would be clipped to nothing. The history holds values as they came.
    """

    def __init__(self, sigmas: float = 1.5, size: int = 100, *, fewest: int = 20, least: float = 0.2) -> None:
        self.sigmas, self.fewest, self.least = sigmas, fewest, least
        self.clipped = 0  # values changed so far
        self._values: deque[float] = deque(maxlen=size)

    def clip(self, values: Iterable[float | None]) -> list[float | None]:
        """The values, in order, held within the bounds of what came before them; None stays None."""
        values = list(values)
        low, high = self.bounds()
        found = [value if value is None else min(high, max(low, value)) for value in values]
        self.clipped += sum(old != new for old, new in zip(values, found, strict=True))
        self._values.extend(value for value in values if value is not None)
        return found

    def bounds(self) -> tuple[float, float]:
        """What the next values are held within."""
        count = len(self._values)
        if count < self.fewest:
            return float("-inf"), float("inf")
        mean = sum(self._values) / count
        sigma = sqrt(sum((value - mean) ** 2 for value in self._values) / count)
        reach = self.sigmas * max(sigma, self.least)
        return mean - reach, mean + reach

    def state(self) -> dict[str, Any]:
        """For a checkpoint; plain JSON types."""
        return {"values": list(self._values), "clipped": self.clipped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
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
