"""The space that a run has seen, for optimisers of other projects: each choice with the values that it took so far.

A policy knows no space: the engine's operators make programs. What an optimiser of vectors can search is the product of
the values seen. So the run's first programs are uniform draws of the engine, and every EVERY-th is an operator's, which
brings new values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

from hipwright.errors import BadInput
from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import breed, expansion, keep_if_best, opening, ranked, signature_of, time_of
from hipwright.search.view import SearchView, Trial

EVERY = 3
STARTUP, STARTUP_SHARE = 10, 0.25
"""The most uniform draws before the optimiser is asked, and their share of the budget."""
PENALTY = 1.0
"""What a program that did not pass is given over the slowest that did, in log time."""
TRIES = 4
"""Answers of the optimiser that were tried already before an operator is used."""


@dataclass(frozen=True)
class KnownSpace:
    """values: of each choice of the base, those seen in the run, numbers in order. rows: the trials that tell
    something, with their log time."""

    base: Trial
    values: Mapping[str, tuple[Any, ...]]
    rows: Sequence[tuple[Trial, float]]

    def index(self, trial: Trial, key: str) -> int | None:
        """The place of a trial's value among the values seen; None where it has not that choice."""
        if key not in trial.proposed.choices:
            return None
        return [repr(value) for value in self.values[key]].index(repr(trial.proposed.choices[key]))


class Optimiser(Protocol):
    """Asked for choices: a function of the space and the seed."""

    def asked(self, space: KnownSpace, count: int, seed: int) -> list[dict[str, Any]]:
        """Returns `count` candidates, each with a value for every choice of the space."""
        ...


class OptimiserPolicy:
    """A policy that asks an optimiser over the values seen. Subclasses give it, and the package that it needs.

    Raises BadInput where the package is not installed.
    """

    optimiser: Optimiser
    package: str

    def __init__(self) -> None:
        if find_spec(self.package) is None:
            message = f"this policy needs the package {self.package}, which is not installed"
            raise BadInput(message, hint="pip install 'hipwright[arms]'")

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Uniform draws at first, then the optimiser's candidates, with an operator's child in every third place."""
        space, elites = known_space(view), ranked(view.verified)
        tried = {signature_of(trial.proposed.choices) for trial in view.trials}
        selected = []
        for number in range(view.next_number, view.next_number + k):
            made = opening(view, number)
            if made is None and number < min(STARTUP, STARTUP_SHARE * view.budget):
                made = expansion(view, number, "random")
            if made is None and number % EVERY and space is not None:
                made = self._asked(view, number, space, tried, rng)
            selected.append(made or breed(view, number, elites[0], elites[:4], rng))
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")

    def _asked(
        self, view: SearchView, number: int, space: KnownSpace, tried: set[str], rng: random.Random
    ) -> Expansion | None:
        for choices in self.optimiser.asked(space, TRIES, rng.getrandbits(31)):
            signature = signature_of({**space.base.proposed.choices, **choices})
            if signature not in tried:
                tried.add(signature)
                return expansion(view, number, "default", (space.base.proposed.program,), choices=choices)
        return None


def known_space(view: SearchView) -> KnownSpace | None:
    """The space around the run's best program; None while nothing passed, or it has no choice."""
    if not view.verified:
        return None
    base = ranked(view.verified)[0]
    told = [t for t in view.trials if t.evaluation is not None and t.evaluation.fault in (None, "candidate")]
    seen = [t.proposed.choices for t in told]
    values = {key: _ordered([one[key] for one in seen if key in one]) for key in sorted(base.proposed.choices)}
    logs = {t.number: math.log(time_of(t)) for t in told if t.passed and 0 < time_of(t) < math.inf}
    if not logs or not values:
        return None
    worst = max(logs.values()) + PENALTY
    return KnownSpace(base, values, [(t, logs.get(t.number, worst)) for t in told])


def _ordered(values: Sequence[Any]) -> tuple[Any, ...]:
    """Each value once: numbers by size, all else by its text."""
    once = {repr(value): value for value in values}
    numbers = [v for v in once.values() if isinstance(v, int | float) and not isinstance(v, bool)]
    rest = [v for v in once.values() if isinstance(v, bool) or not isinstance(v, int | float)]
    return (*sorted(numbers), *sorted(rest, key=repr))
