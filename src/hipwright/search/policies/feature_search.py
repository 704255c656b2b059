"""Feature search: compiling, passing and latency as joint features, after FSR of CUDA-LLM (arXiv:2506.09092).

FSR refines a program's text towards the three at once. Here each (choice, value) has, from the run's trials, the chance
that a program with it compiles, the chance that it then passes, by Laplace's rule, and the mean log time of those that
did, shrunk towards the mean of all. A candidate is one of the fastest programs with one or two choices at values seen
elsewhere in the run; its worth is the product of its lowest chances, times exp(-predicted log time). The best untried
candidate is proposed; every third proposal is an operator's, which brings new values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import breed, expansion, keep_if_best, opening, ranked, signature_of, time_of
from hipwright.search.view import SearchView, Trial

EVERY = 3
BASES, CANDIDATES = 3, 200
SHRINK = 1.0
"""Observations of the overall mean with which each value's mean is mixed."""
_UNBUILT = ("parse_error", "compile_error")


@dataclass
class FeatureTally:
    """What the run saw of one (choice, value). logs: log times of those that passed."""

    tried: int = 0
    compiled: int = 0
    passed: int = 0
    logs: list[float] = field(default_factory=list)

    def chances(self) -> tuple[float, float]:
        """(compiles, passes where it compiled), by Laplace's rule."""
        return (self.compiled + 1) / (self.tried + 2), (self.passed + 1) / (self.compiled + 2)

    def effect(self, mean: float) -> float:
        """The mean log time over that of all, shrunk towards 0."""
        return sum(value - mean for value in self.logs) / (len(self.logs) + SHRINK)


class FeatureSearch:
    """No settings."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """The best candidates by the joint features, with an operator's child in every third place."""
        tallies, elites = tally(view), ranked(view.verified)
        tried = {signature_of(trial.proposed.choices) for trial in view.trials}
        selected = []
        for number in range(view.next_number, view.next_number + k):
            start = opening(view, number)
            if start is None and number % EVERY:
                start = _best(view, number, elites[:BASES], tallies, tried, rng)
            selected.append(start or breed(view, number, elites[0], elites[:4], rng))
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def tally(view: SearchView) -> dict[tuple[str, str], FeatureTally]:
    """The features of every (choice, value) of the run."""
    found: dict[tuple[str, str], FeatureTally] = {}
    for trial in view.trials:
        evaluation = trial.evaluation
        if evaluation is None or evaluation.fault not in (None, "candidate"):
            continue
        for key, value in trial.proposed.choices.items():
            one = found.setdefault((key, repr(value)), FeatureTally())
            one.tried += 1
            one.compiled += evaluation.status not in _UNBUILT
            one.passed += trial.passed
            if trial.passed and 0 < time_of(trial) < math.inf:
                one.logs.append(math.log(time_of(trial)))
    return found


def worth(choices: Mapping[str, Any], tallies: Mapping[tuple[str, str], FeatureTally], mean: float) -> float:
    """The joint worth of some choices: the lowest chances times the predicted speed against the mean."""
    known = [tallies.get((key, repr(value)), FeatureTally()) for key, value in choices.items()]
    chances = [one.chances() for one in known] or [(0.5, 0.5)]
    speed = -sum(one.effect(mean) for one in known)
    return min(c for c, _ in chances) * min(p for _, p in chances) * math.exp(max(min(speed, 5.0), -5.0))


def _best(
    view: SearchView,
    number: int,
    bases: list[Trial],
    tallies: Mapping[tuple[str, str], FeatureTally],
    tried: set[str],
    rng: random.Random,
) -> Expansion | None:
    logs = [math.log(time_of(trial)) for trial in view.verified if 0 < time_of(trial) < math.inf]
    mean = sum(logs) / max(len(logs), 1)
    found = [
        (worth(choices, tallies, mean), rng.random(), base, changed)
        for base, changed, choices in _candidates(view, bases, rng)
        if signature_of(choices) not in tried
    ]
    if not found:
        return None
    _, _, base, changed = max(found, key=lambda one: one[:2])
    tried.add(signature_of({**base.proposed.choices, **changed}))
    return expansion(view, number, "default", (base.proposed.program,), choices=changed)


def _candidates(
    view: SearchView, bases: list[Trial], rng: random.Random
) -> Iterator[tuple[Trial, dict[str, Any], dict[str, Any]]]:
    """(base, what changes, all choices): every single swap, then random pairs of them, CANDIDATES in all."""
    for base in bases:
        now = base.proposed.choices
        swaps = {
            (key, repr(t.proposed.choices[key])): (key, t.proposed.choices[key])
            for t in view.trials
            for key in sorted(now)
            if key in t.proposed.choices and t.proposed.choices[key] != now[key]
        }
        some = list(swaps.values())
        for key, value in some:
            yield base, {key: value}, {**now, key: value}
        for _ in range(CANDIDATES // len(bases) if len(some) > 1 else 0):
            changed = dict(rng.sample(some, 2))
            yield base, changed, {**now, **changed}
