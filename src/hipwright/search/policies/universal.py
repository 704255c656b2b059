"""Three selections under one universal operator, after KernelEvolve (arXiv:2512.23236).

KernelEvolve has one operator that adapts to its context in place of fixed ones, and exchanges the selection around it.
The engine's operator `universal` (search/operators.py) takes a base and inspirations: one to three choices change, each
to an inspiration's value or to another one. The selection of the base is

    universal_greedy      the fastest program
    universal_uct         the walk of `uct`
    universal_evolution   the fastest of TOURNAMENT programs drawn at random

and the inspirations are two of the fastest others.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import expansion, keep_if_best, opening, ranked
from hipwright.search.policies.uct import C, TreeNode, descend, grow
from hipwright.search.view import SearchView, Trial

TOURNAMENT, ELITES, INSPIRATIONS = 3, 6, 2

Base = Callable[[random.Random], Trial]


class UniversalGreedy:
    """Always varies the fastest program. No settings."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """A child of the selected base with its inspirations, in each place."""
        base, elites = self.bases(view), ranked(view.verified)
        return [
            opening(view, number) or _child(view, number, base(rng), elites, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def bases(self, view: SearchView) -> Base:
        """The function that selects a base."""
        elites = ranked(view.verified)
        return lambda rng: elites[0]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far; any verified program may be a base."""
        return keep_if_best(view, trial, evaluation, "the best")


class UniversalUct(UniversalGreedy):
    """Run setting "uct_c": the weight of exploration (0.3)."""

    def bases(self, view: SearchView) -> Base:
        """The node where a walk ends; at the root, the fastest program."""
        root, weight, best = grow(view), float(view.settings.get("uct_c", C)), ranked(view.verified)

        def walk(rng: random.Random) -> Trial:
            node: TreeNode = descend(root, weight)
            return node.trial if node.trial is not None else best[0]

        return walk


class UniversalEvolution(UniversalGreedy):
    """Selects by tournament. No settings."""

    def bases(self, view: SearchView) -> Base:
        """The fastest of a few programs drawn at random."""
        return lambda rng: ranked(rng.choices(view.verified, k=TOURNAMENT))[0]


def _child(view: SearchView, number: int, base: Trial, elites: list[Trial], rng: random.Random) -> Expansion:
    others = [one.proposed.program for one in elites[:ELITES] if one.proposed.program != base.proposed.program]
    inspiring = rng.sample(others, min(len(others), INSPIRATIONS))
    return expansion(view, number, "universal", (base.proposed.program, *inspiring))
