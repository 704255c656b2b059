"""Pattern search (Hooke & Jeeves, J. ACM 1961): single changes around a base, then combinations of those that gained.

The engine's default is seldom far from the best of its space: mostly one or two choices are wrong. The moves around a
base are all single changes in random order, each once; then combinations of two or more gains, the most promising
first. The best program is the next base.
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
"""Consecutive proposals without a new program after which all single changes count as tried."""
SHARE = 0.6
"""The largest share of the budget for single changes of one base; the rest is for combinations."""
COMBINED_GAINS, COMBINATIONS = 4, 6
"""The most gains in a combination, and the most combinations of one base."""


class PatternSearch:
    """Run setting "sweep": the share of the budget for single changes around one base (0.6)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Single changes of the base, then combinations of its gains, then the same around the best program."""
        numbers = range(view.next_number, view.next_number + k)
        start = [opening(view, number) for number in numbers]
        free = [number for number, given in zip(numbers, start, strict=True) if given is None]
        return [*filter(None, start), *_moves(view, free)]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def _moves(view: SearchView, numbers: Sequence[int]) -> list[Expansion]:
    if not numbers:
        return []
    base = _base(view)
    mine = [t for t in view.trials if t.proposed.expansion.action.get("base") == base.proposed.program]
    program = base.proposed.program
    if not _swept(view, mine):
        return [expansion(view, number, "turn", (program,), base=program) for number in numbers]
    combined = [
        expansion(view, number, "default", (program,), base=program, choices=dict(choices))
        for number, choices in zip(numbers, _combinations(view, base, mine), strict=False)
    ]
    best = ranked(view.verified)[0].proposed.program
    operator = "mutate" if combined or best in _bases(view) else "turn"  # a combination made now may be the next base
    parent, rest = program if combined else best, numbers[len(combined) :]
    return combined + [expansion(view, number, operator, (parent,), base=parent) for number in rest]


def _base(view: SearchView) -> Trial:
    """The current base: the one that the latest moves started from, else the fastest program."""
    known = by_program(view)
    named = [key for t in reversed(view.trials) if (key := str(t.proposed.expansion.action.get("base", ""))) in known]
    return known[named[0]] if named else ranked(view.verified)[0]


def _bases(view: SearchView) -> set[str]:
    return {str(t.proposed.expansion.action.get("base", "")) for t in view.trials}


def _swept(view: SearchView, mine: Sequence[Trial]) -> bool:
    """Whether all single changes were tried, or as many as their share of the budget allows."""
    share = float(view.settings.get("sweep", SHARE))
    turns = [t.proposed.evaluable for t in mine if t.proposed.expansion.operator == "turn"]
    barren = len(turns) >= BARREN and not any(turns[-BARREN:])
    return barren or sum(turns) >= max(share * view.budget, 1)


def _combinations(view: SearchView, base: Trial, mine: Sequence[Trial]) -> Sequence[Mapping[str, Any]]:
    """Untried combinations of choices that each gained alone, the most promising first."""
    tried = [t.proposed.expansion.action.get("choices") for t in mine]
    left = COMBINATIONS - sum(choices is not None for choices in tried)
    gains: dict[str, tuple[float, Any]] = {}
    for trial in mine:
        changed = {k: v for k, v in trial.proposed.choices.items() if base.proposed.choices.get(k) != v}
        ratio = time_of(base) / time_of(trial) if 0 < time_of(trial) < inf else 0.0
        if trial.proposed.expansion.operator == "turn" and len(changed) == 1 and ratio > 1:
            ((key, value),) = changed.items()
            gains[key] = max(gains.get(key, (0.0, None)), (ratio, value), key=lambda gain: gain[0])
    top = sorted(gains, key=lambda key: (-gains[key][0], key))[:COMBINED_GAINS]
    sets = [some for n in range(2, len(top) + 1) for some in combinations(top, n)]
    sets.sort(key=lambda some: (-prod(gains[key][0] for key in some), some))
    found = [{key: gains[key][1] for key in some} for some in sets]
    return [choices for choices in found if choices not in tried][: max(left, 0)]
