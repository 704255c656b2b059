"""(1+1) search: one parent, one child at a time; the child replaces the parent only when it is certainly faster.

The (1+1) evolution strategy (Rechenberg 1973; Droste, Jansen and Wegener 2002) accepts a child that is at least as
good. Here times are noisy: parent and child are timed against the same baseline, and the child's interval must lie
wholly below the parent's (hipwright.search.fitness).
"""

from __future__ import annotations

import random

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import expansion, keep_if_best, opening
from hipwright.search.view import SearchView, Trial

RESTART_AFTER = 4
"""Consecutive proposals without a new program after which the next one is random: the neighbourhood is exhausted."""


class OnePlusOne:
    """The parent is the best so far; children of a round share it and are decided in order."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Children by "mutate" or "neighbour" with equal probability; "random" once nothing new is found nearby."""
        return [
            opening(view, number) or _child(view, number, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Replaces the current parent when the child's interval lies below it."""
        return keep_if_best(view, trial, evaluation, "the parent")


def _child(view: SearchView, number: int, rng: random.Random) -> Expansion:
    if view.barren >= RESTART_AFTER:
        return expansion(view, number, "random")
    parent = view.best or view.verified[-1]
    return expansion(view, number, rng.choice(("mutate", "neighbour")), (parent.proposed.program,))
