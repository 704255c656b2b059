"""A tree of strategies separate from their programs, after K-Search (arXiv:2602.19128).

A strategy is a base program and an operator. It is abandoned after 5 tries that did not improve on the base; a program
that improves on its base opens strategies of its own. The frontier (all strategies not abandoned) is ordered by

    score        of the base program, the fastest first
    difficulty   of the operator: one program (neighbour, mutate) before two (crossover)
    rating       the share of the operator's tries that improved in this run, (improved + 1) / (tries + 2)

In K-Search a model names and rates the strategies; here ratings are counts, so that the policy is pure. Programs that a
model wrote open strategies like any other; tries by a model's operators are not counted.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import (
    beats,
    beats_best,
    by_program,
    comparison,
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
    """Counts of tries. failed: tries without improvement by (base program, operator); tried, improved: by operator."""

    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    improved: Counter[str] = field(default_factory=Counter)

    def rating(self, operator: str) -> float:
        """The share of an operator's tries that improved, by Laplace's rule."""
        return (self.improved[operator] + 1) / (self.tried[operator] + 2)


class StrategyTree:
    """Run setting "strategy_tries": tries without improvement before a strategy is abandoned (5)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Takes the frontier's first strategies, each counted as a try at once; "random" when all are abandoned."""
        counts, bases = tally(view), ranked(t for t in view.verified if t.decision is None or t.decision.kept)
        most = max(int(view.settings.get("strategy_tries", TRIES)), 1)
        return [
            opening(view, number) or _next(view, number, bases, counts, most, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what improves on its base or has none; it opens strategies of its own."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        base = parent_of(trial, by_program(view))
        best = beats_best(view, evaluation)
        kept = best or base is None or beats(view, evaluation, base)
        if best:
            reason = comparison(view, evaluation, view.best, "the best")
        elif base is None:
            reason = "opens strategies of its own"
        else:
            reason = comparison(view, evaluation, base, "its base")
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def tally(view: SearchView) -> StrategyTally:
    """Counts tries and improvements over all decided trials."""
    counts, known = StrategyTally(), by_program(view)
    for trial in view.trials:
        base, operator = parent_of(trial, known), trial.proposed.expansion.operator
        if base is None or operator not in DIFFICULTY:
            continue
        counts.tried[operator] += 1
        if trial.passed and trial.evaluation is not None and beats(view, trial.evaluation, base):
            counts.improved[operator] += 1
        else:
            counts.failed[base.proposed.program, operator] += 1
    return counts


def _next(
    view: SearchView, number: int, bases: list[Trial], counts: StrategyTally, most: int, rng: random.Random
) -> Expansion:
    frontier = [
        (time_of(base), DIFFICULTY[operator], -counts.rating(operator), base.number, operator)
        for base in bases
        for operator in DIFFICULTY
        if counts.failed[base.proposed.program, operator] < most and (operator != "crossover" or len(bases) > 1)
    ]
    if not frontier:
        return expansion(view, number, "random")
    *_, chosen, operator = min(frontier)
    program = next(t.proposed.program for t in bases if t.number == chosen)
    counts.failed[program, operator] += 1
    if operator != "crossover":
        return expansion(view, number, operator, (program,))
    other = rng.choice([t.proposed.program for t in bases if t.number != chosen])
    return expansion(view, number, operator, (program, other))
