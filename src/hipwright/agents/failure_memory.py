"""Failure memory: what went wrong in this run, for the engine's draws and for a model's prompt.

A failed program differs from some verified one. What differs is to blame: single choices that never passed, and pairs
with them that never passed together. What passes later is cleared. A program clearly slower than its parent puts half
as much blame on what was changed. Blame halves every `HALF_LIFE` trials, so nothing is ruled out for good.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.search import SearchView, Trial, fitness
from hipwright.search.interfaces import INFRASTRUCTURE

HALF_LIFE = 16
LOST = 0.10
"""A program this much slower than its parent (relative) has clearly lost."""
_LOST_BLAME = 0.5
_MOST = 0.9  # a remembered failure is still tried now and then

Item = tuple[str, Any]
Cause = tuple[Item, ...]


@dataclass(frozen=True)
class Failure:
    """One kind of failure: its latest trial, and how many trials ended like it."""

    trial: Trial
    count: int = 1

    @property
    def status(self) -> str:
        """The evaluation's status, "no program" where none was made."""
        return self.trial.evaluation.status if self.trial.evaluation else "no program"

    @property
    def message(self) -> str:
        """What was said of it."""
        return self.trial.evaluation.message if self.trial.evaluation else self.trial.proposed.error


def recent_failures(view: SearchView, k: int) -> list[Failure]:
    """The last k kinds of failure, latest first; the machine's and the providers' faults are none.

    Of one kind are failures with the same status and the same message but for its numbers.
    """
    found: dict[tuple[str, str], Failure] = {}
    for trial in reversed(view.trials):
        if not _failed(trial) and not trial.proposed.error:
            continue
        failure = Failure(trial)
        kind = failure.status, re.sub(r"\d+(\.\d+)?", "#", failure.message)[:200]
        known = found.get(kind)
        found[kind] = failure if known is None else Failure(known.trial, known.count + 1)
    return list(found.values())[:k]


@dataclass(frozen=True)
class FailureMemory:
    """Blame from 0 to 1 on single choices and on pairs of them (each sorted by key)."""

    blame: Mapping[Cause, float] = field(default_factory=dict)

    @classmethod
    def of(cls, view: SearchView) -> FailureMemory:
        """What the trials of a view teach."""
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

    def weight(self, choices: Mapping[str, Any]) -> float:
        """How surely a draw repeats a remembered failure, 0 to 0.9, by its worst cause: how often to draw anew."""
        if not self.blame:
            return 0.0
        return min(max((self.blame.get(cause, 0.0) for cause in _causes(_items(choices))), default=0.0), _MOST)


def _failed(trial: Trial) -> bool:
    e = trial.evaluation
    return e is not None and not e.passed and e.fault not in INFRASTRUCTURE


def _items(choices: Mapping[str, Any]) -> list[Item]:
    return sorted((key, value) for key, value in choices.items() if isinstance(value, (str, int, float)))


def _causes(items: list[Item]) -> Iterator[Cause]:
    """Every single choice and every pair."""
    yield from ((item,) for item in items)
    yield from itertools.combinations(items, 2)


def _blamed(view: SearchView, trial: Trial, passed: set[Cause], innocent: set[Cause]) -> dict[Cause, float]:
    if not trial.proposed.choices:
        return {}
    if _failed(trial):
        return _of_failure(view, trial, passed)
    if trial.passed:
        return _of_loss(view, trial, innocent)
    return {}


def _of_failure(view: SearchView, trial: Trial, passed: set[Cause]) -> dict[Cause, float]:
    """One unit of blame on the fewest changes from a verified program: half on single ones, half on pairs with them."""
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


def _of_loss(view: SearchView, trial: Trial, innocent: set[Cause]) -> dict[Cause, float]:
    """What was changed from a parent that is clearly faster; never what the best so far has too."""
    keys = trial.proposed.expansion.parents[:1]
    parent = next((t for t in view.verified if t.proposed.program in keys), None)
    if parent is None or parent.evaluation is None or trial.evaluation is None:
        return {}
    if not fitness.faster(parent.evaluation, trial.evaluation, LOST):
        return {}
    changed = [(item,) for item in _changed(_items(trial.proposed.choices), parent)]
    return {cause: _LOST_BLAME / len(changed) for cause in changed if cause not in innocent}


def _changed(items: list[Item], near: Trial) -> list[Item]:
    return [(key, value) for key, value in items if near.proposed.choices.get(key) != value]
