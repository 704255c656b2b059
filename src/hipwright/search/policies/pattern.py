"""Pattern search: every choice is changed by itself, then what helped is joined (Hooke & Jeeves, J. ACM 1961).

The engine's first answer is seldom far from the best of its space, and mostly one or two choices are wrong. So the
moves around a base are single changes, each once, in an order drawn at random; then the gains among them together, by
twos and more, the most promising first. The best of all is the next base.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf, prod
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import by_program, expansion, keep_if_best, opening, ranked, time_of
from hipwright.search.view import SearchView, Trial

BARREN = 4
"""Proposals in a row without a new program: every single change was tried."""
SHARE = 0.6
"""Of the budget that single changes of one base may take at most: a large space leaves some for joining."""
JOINED, JOINS = 4, 6
"""Gains that are joined at most, and joins of one base."""


class PatternSearch:
    """Setting of the run: "sweep", the share of the budget for single changes around one base (0.6)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Single changes of the base, then joins of its gains, then the same around the best."""
        numbers = range(view.next_number, view.next_number + k)
        start = [opening(view, number) for number in numbers]
        free = [number for number, given in zip(numbers, start, strict=True) if given is None]
        return [*filter(None, start), *_moves(view, free)]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keep what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def _moves(view: SearchView, numbers: Sequence[int]) -> list[Expansion]:
    if not numbers:
        return []
    base = _base(view)
    mine = [t for t in view.trials if t.proposed.expansion.action.get("base") == base.proposed.program]
    program = base.proposed.program
    if not _swept(view, mine):
        return [expansion(view, number, "turn", (program,), base=program) for number in numbers]
    joins = _joins(view, base, mine)
    joined = [
        expansion(view, number, "default", (program,), base=program, choices=dict(choices))
        for number, choices in zip(numbers, joins, strict=False)
    ]
    best = ranked(view.verified)[0].proposed.program
    operator = "mutate" if joined or best in _bases(view) else "turn"  # what is joined now may be the next base
    own = program if joined else best
    return joined + [expansion(view, number, operator, (own,), base=own) for number in numbers[len(joined) :]]


def _base(view: SearchView) -> Trial:
    """Around which program the search goes: the last one that moves were made from, else the fastest."""
    known = by_program(view)
    named = [key for t in reversed(view.trials) if (key := str(t.proposed.expansion.action.get("base", ""))) in known]
    return known[named[0]] if named else ranked(view.verified)[0]


def _bases(view: SearchView) -> set[str]:
    return {str(t.proposed.expansion.action.get("base", "")) for t in view.trials}


def _swept(view: SearchView, mine: Sequence[Trial]) -> bool:
    """Were all single changes tried, or as many as the budget is for?"""
    share = float(view.settings.get("sweep", SHARE))
    turns = [t.proposed.evaluable for t in mine if t.proposed.expansion.operator == "turn"]
    barren = len(turns) >= BARREN and not any(turns[-BARREN:])
    return barren or sum(turns) >= max(share * view.budget, 1)


def _joins(view: SearchView, base: Trial, mine: Sequence[Trial]) -> Sequence[Mapping[str, Any]]:
    """Sets of choices that each gained by itself and were not tried together, the most promising first."""
    tried = [t.proposed.expansion.action.get("choices") for t in mine]
    left = JOINS - sum(choices is not None for choices in tried)
    gains: dict[str, tuple[float, Any]] = {}
    for trial in mine:
        changed = {k: v for k, v in trial.proposed.choices.items() if base.proposed.choices.get(k) != v}
        ratio = time_of(base) / time_of(trial) if 0 < time_of(trial) < inf else 0.0
        if trial.proposed.expansion.operator == "turn" and len(changed) == 1 and ratio > 1:
            ((key, value),) = changed.items()
            gains[key] = max(gains.get(key, (0.0, None)), (ratio, value), key=lambda gain: gain[0])
    top = sorted(gains, key=lambda key: (-gains[key][0], key))[:JOINED]
    sets = [some for n in range(2, len(top) + 1) for some in combinations(top, n)]
    sets.sort(key=lambda some: (-prod(gains[key][0] for key in some), some))
    found = [{key: gains[key][1] for key in some} for some in sets]
    return [choices for choices in found if choices not in tried][: max(left, 0)]
