"""Best of N: the starting actions, then independent uniform samples. The control arm of every comparison."""

from __future__ import annotations

import random

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import expansion, first, keep_if_best
from hipwright.search.view import SearchView, Trial


class BestOfN:
    """Learns nothing from earlier trials; keeps a program that is the best so far."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Returns the starting actions in order, then operator "random"."""
        numbers = range(view.next_number, view.next_number + k)
        return [first(view, n) if n < len(view.initial) else expansion(view, n, "random") for n in numbers]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")
