"""A tree of strategies kept apart from their programs, after K-Search (arXiv:2602.19128).

A strategy is a base program and a way to change it. It is tried until it has failed to improve on its base 5 times; a
program that improves on its base opens strategies of its own. The frontier, all strategies not yet given up, is
ordered by

    score        of the base program, the fastest first
    difficulty   of the way: one choice (neighbour, mutate) before two programs at once (crossover)
    rating       how often that way improved on its base in this run, (improved + 1) / (tries + 2)

In K-Search a model names and rates the strategies; here the ways are the operators and the ratings are counts, so that
the policy is pure. Programs that a model wrote open strategies like any other, and its tries are not counted as ours.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import (
    against,
    beats,
    beats_best,
    by_program,
    expansion,
    opening,
    parent_of,
    ranked,
    rejected,
    time_of,
)
from hipwright.search.view import SearchView, Trial

DIFFICULTY = {"neighbour": 1, "mutate": 1, "crossover": 2}
TRIES = 5


@dataclass
class StrategyTally:
    """What the log says of the strategies. failed: non-improving tries by (base program, way)."""

    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    improved: Counter[str] = field(default_factory=Counter)

    def rating(self, way: str) -> float:
        """The share of a way's tries that improved, by Laplace's rule."""
        return (self.improved[way] + 1) / (self.tried[way] + 2)


class StrategyTree:
    """Setting of the run: "strategy_tries", the non-improving tries before a strategy is given up (5)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """The front of the frontier; each choice counts as a try at once. "random" when all are given up."""
        counts, bases = tally(view), ranked(t for t in view.verified if t.decision is None or t.decision.kept)
        most = max(int(view.settings.get("strategy_tries", TRIES)), 1)
        return [
            opening(view, number) or _next(view, number, bases, counts, most, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keep what improves on its base, and what has none: it opens strategies of its own."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        base = parent_of(trial, by_program(view))
        best = beats_best(view, evaluation)
        kept = best or base is None or beats(view, evaluation, base)
        if best:
            reason = against(view, evaluation, view.best, "the best")
        elif base is None:
            reason = "opens strategies of its own"
        else:
            reason = against(view, evaluation, base, "its base")
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def tally(view: SearchView) -> StrategyTally:
    """Tries and improvements of the strategies over all decided trials."""
    counts, known = StrategyTally(), by_program(view)
    for trial in view.trials:
        base, way = parent_of(trial, known), trial.proposed.expansion.operator
        if base is None or way not in DIFFICULTY:
            continue
        counts.tried[way] += 1
        if trial.passed and trial.evaluation is not None and beats(view, trial.evaluation, base):
            counts.improved[way] += 1
        else:
            counts.failed[base.proposed.program, way] += 1
    return counts


def _next(
    view: SearchView, number: int, bases: list[Trial], counts: StrategyTally, most: int, rng: random.Random
) -> Expansion:
    frontier = [
        (time_of(base), DIFFICULTY[way], -counts.rating(way), base.number, way)
        for base in bases
        for way in DIFFICULTY
        if counts.failed[base.proposed.program, way] < most and (way != "crossover" or len(bases) > 1)
    ]
    if not frontier:
        return expansion(view, number, "random")
    *_, chosen, way = min(frontier)
    program = next(t.proposed.program for t in bases if t.number == chosen)
    counts.failed[program, way] += 1
    if way != "crossover":
        return expansion(view, number, way, (program,))
    other = rng.choice([t.proposed.program for t in bases if t.number != chosen])
    return expansion(view, number, way, (program, other))
