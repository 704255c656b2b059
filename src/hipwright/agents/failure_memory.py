"""Failure memory: assigns blame for a run's failures to choices, so that the engine redraws what repeats them.

A failed program is compared with the nearest verified one. Blame goes to the single choices that differ and never
passed, and to pairs with them that never passed together; a later pass clears it. A program clearly slower than its
parent blames its changes half as much. Blame halves every `HALF_LIFE` trials, so nothing is excluded for good.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.search import SearchView, Trial, fitness
from hipwright.search.interfaces import INFRASTRUCTURE

HALF_LIFE = 16
SLOWDOWN = 0.10
"""A program at least this much slower than its parent (relative) counts as a slowdown."""
_SLOWDOWN_BLAME = 0.5
_MOST = 0.9  # a remembered failure is still tried sometimes

Item = tuple[str, Any]
Cause = tuple[Item, ...]


@dataclass(frozen=True)
class FailureMemory:
    """Blame from 0 to 1 on single choices and on pairs of choices (each sorted by key)."""

    blame: Mapping[Cause, float] = field(default_factory=dict)

    @classmethod
    def of(cls, view: SearchView) -> FailureMemory:
        """Builds the memory from the trials of a view."""
        passed = {cause for trial in view.verified for cause in _causes(_items(trial.proposed.choices))}
        innocent: set[Cause] = {(item,) for item in _items(view.best.proposed.choices)} if view.best else set()
        blame: dict[Cause, float] = {}
        for trial in view.trials:
            age = view.next_number - 1 - trial.number
            causes = _blamed(view, trial, passed, innocent)
            for cause, share in causes.items():
                share *= 0.5 ** (age / HALF_LIFE)
                blame[cause] = 1.0 - (1.0 - blame.get(cause, 0.0)) * (1.0 - share)
        return cls(blame)

    def redraw_probability(self, choices: Mapping[str, Any]) -> float:
        """The probability with which a draw should be repeated: the blame on its worst cause, at most 0.9."""
        if not self.blame:
            return 0.0
        return min(max((self.blame.get(cause, 0.0) for cause in _causes(_items(choices))), default=0.0), _MOST)


def _failed(trial: Trial) -> bool:
    e = trial.evaluation
    return e is not None and not e.passed and e.fault not in INFRASTRUCTURE


def _items(choices: Mapping[str, Any]) -> list[Item]:
    return sorted((key, value) for key, value in choices.items() if isinstance(value, (str, int, float)))


def _causes(items: list[Item]) -> Iterator[Cause]:
    """Yields every single choice and every pair."""
    yield from ((item,) for item in items)
    yield from itertools.combinations(items, 2)


def _blamed(view: SearchView, trial: Trial, passed: set[Cause], innocent: set[Cause]) -> dict[Cause, float]:
    if not trial.proposed.choices:
        return {}
    if _failed(trial):
        return _of_failure(view, trial, passed)
    if trial.passed:
        return _of_slowdown(view, trial, innocent)
    return {}


def _of_failure(view: SearchView, trial: Trial, passed: set[Cause]) -> dict[Cause, float]:
    """Splits one unit of blame over the fewest changes from a verified program: half on single ones, half on pairs."""
    items = _items(trial.proposed.choices)
    changed = min((_changed(items, near) for near in view.verified), key=len, default=items)
    single: list[Cause] = [(item,) for item in changed if (item,) not in passed]
    pairs: list[Cause] = [
        pair
        for pair in itertools.combinations(items, 2)
        if (pair[0] in changed or pair[1] in changed) and pair not in passed
    ]
    blamed = [causes for causes in (single, pairs) if causes]
    return {cause: 1.0 / len(blamed) / len(causes) for causes in blamed for cause in causes}


def _of_slowdown(view: SearchView, trial: Trial, innocent: set[Cause]) -> dict[Cause, float]:
    """Blames the changes from a clearly faster parent, except those that the best program shares."""
    keys = trial.proposed.expansion.parents[:1]
    parent = next((t for t in view.verified if t.proposed.program in keys), None)
    if parent is None or parent.evaluation is None or trial.evaluation is None:
        return {}
    if not fitness.faster(parent.evaluation, trial.evaluation, SLOWDOWN):
        return {}
    changed = [(item,) for item in _changed(_items(trial.proposed.choices), parent)]
    return {cause: _SLOWDOWN_BLAME / len(changed) for cause in changed if cause not in innocent}


def _changed(items: list[Item], near: Trial) -> list[Item]:
    return [(key, value) for key, value in items if near.proposed.choices.get(key) != value]
