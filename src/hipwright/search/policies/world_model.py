"""A tree of strategies with a world model that predicts what each is worth, after K-Search (arXiv:2602.19128).

A strategy is a base program and a named move (search/moves.py). The world model predicts the log gain of a move against
what limits its base. Its prior is the engine's table of moves: the limit's first move is expected to gain PRIOR, each
later one half as much, a move of another limit OTHER. Evidence refines it: the mean of the prior, counted as WEIGHT
observations, and of the gains of the move's tries, those against the same limit counted whole and others by HALF. A try
that did not improve is a gain of 0.

The strategy with the highest predicted value, -ln(time of the base) + predicted gain / (1 + its failures), is tried
next, and is abandoned after TRIES failures. In K-Search a model names and scores strategies; with models, the move is
the strategy that their prompt quotes.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.moves import EVERY_MOVE, MOVE, MOVES
from hipwright.search.policies.common import (
    by_program,
    expansion,
    keep_if_best,
    log_gain,
    opening,
    parent_of,
    ranked,
    time_of,
)
from hipwright.search.view import SearchView, Trial

PRIOR, OTHER, WEIGHT, HALF = 0.15, 0.01, 2.0, 0.5
TRIES = 3
BASES = 4
"""The fastest programs that strategies start from."""


@dataclass
class WorldModel:
    """What the run has seen of each (limit, move): the sum of gains and the number of tries; failed by strategy."""

    gains: Counter[tuple[str, str]] = field(default_factory=Counter)
    tries: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def predicted(self, limit: str, move: str) -> float:
        """The expected log gain of a move against a limit."""
        total, n = prior(limit, move) * WEIGHT, WEIGHT
        for (seen, name), count in self.tries.items():
            if name == move:
                share = 1.0 if seen == limit else HALF
                total, n = total + share * self.gains[seen, name], n + share * count
        return total / n


def prior(limit: str, move: str) -> float:
    """The gain that the engine's table expects."""
    names = [one.name for one in MOVES.get(limit, ())]
    return PRIOR * 0.5 ** names.index(move) if move in names else OTHER


class WorldModelTree:
    """Run setting "strategy_tries": failures after which a strategy is abandoned (3)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Takes the strategies of highest predicted value, each counted as a failure at once; then samples."""
        model, bases = observed(view), ranked(view.verified)[:BASES]
        most = max(int(view.settings.get("strategy_tries", TRIES)), 1)
        return [
            opening(view, number) or _next(view, number, bases, model, most, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def observed(view: SearchView) -> WorldModel:
    """The model after all decided trials."""
    model, known = WorldModel(), by_program(view)
    for trial in view.trials:
        base, move = parent_of(trial, known), str(trial.proposed.expansion.action.get(MOVE, ""))
        if base is None or move not in EVERY_MOVE:
            continue
        gain, limit = max(log_gain(trial, base), 0.0), limit_of(view, base)
        model.tries[limit, move] += 1
        model.gains[limit, move] += gain  # type: ignore[assignment]
        if not gain:
            model.failed[base.proposed.program, move] += 1
    return model


def limit_of(view: SearchView, trial: Trial) -> str:
    """What limits a program by the run's counters; "" where it is not known."""
    counted = view.counted.get(trial.proposed.program)
    return counted.limit if counted is not None else ""


def _next(
    view: SearchView, number: int, bases: list[Trial], model: WorldModel, most: int, rng: random.Random
) -> Expansion:
    found = []
    for base in bases:
        for move in EVERY_MOVE:
            failed = model.failed[base.proposed.program, move]
            if failed < most:
                gain = model.predicted(limit_of(view, base), move) / (1 + failed)
                found.append((-math.log(time_of(base)) + gain, rng.random(), gain, base, move))
    if not found:
        return expansion(view, number, "random")
    _, _, gain, base, move = max(found, key=lambda one: one[:2])
    model.failed[base.proposed.program, move] += 1
    return expansion(view, number, "mutate", (base.proposed.program,), **{MOVE: move, "predicted": round(gain, 4)})
