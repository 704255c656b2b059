"""Near copies: tasks that apply nearly the same operators to the same operands.

Likeness is the Jaccard index of the steps of two tasks (text_steps.py, graphs/hash.py). MinHash (Broder 1997, "On the
resemblance and containment of documents") with banding finds candidates, and each candidate is compared exactly. Names,
layout, comments, sizes, dtypes and constants leave no step.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from hipwright.errors import BadInput
from hipwright.synth.text_steps import text_steps

THRESHOLD = 0.8
"""Likeness from which two tasks count as near copies; docs/hygiene.md explains the value."""

_PERMUTATIONS = 128
_SEED = 1


class NearCopyIndex:
    """An index of tasks by their steps. threshold: least likeness of a near copy. Not thread-safe."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self._steps: dict[str, frozenset[str]] = {}
        self._index = _index(threshold)

    def add(self, key: str, source: str) -> str | None:
        """The key of the kept task that `source` is a near copy of. Where there is none: keep `source`, return None."""
        steps = text_steps(source)
        found = self.find(steps)
        if found:
            return found[0][0]
        self.keep(key, steps)
        return None

    def keep(self, key: str, steps: frozenset[str]) -> None:
        """Keep a task, near copy or not."""
        if key not in self._steps:
            self._steps[key] = steps
            self._index.insert(key, minhash(steps))

    def find(self, steps: frozenset[str]) -> list[tuple[str, float]]:
        """(key, likeness) of the kept tasks at or above the threshold, in decreasing order of likeness."""
        candidates = self._index.query(minhash(steps)) if steps else ()
        found = [(key, likeness(steps, self._steps[key])) for key in candidates]
        return sorted(((k, v) for k, v in found if v >= self.threshold), key=lambda item: (-item[1], item[0]))


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The Jaccard index: 1 for equal step sets, 0 for disjoint or empty ones."""
    return len(one & other) / len(one | other) if one and other else 0.0


def minhash(steps: Iterable[str]) -> Any:
    """The MinHash of a task's steps."""
    minhash = _datasketch().MinHash(num_perm=_PERMUTATIONS, seed=_SEED)
    minhash.update_batch([step.encode() for step in sorted(steps)])
    return minhash


def _index(threshold: float) -> Any:
    """Banding that prefers false candidates over missed ones: the exact comparison removes false candidates."""
    return _datasketch().MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS, weights=(0.05, 0.95))


def _datasketch() -> Any:
    try:
        return importlib.import_module("datasketch")
    except ModuleNotFoundError as error:
        hint = "pip install 'hipwright[data]'"
        raise BadInput("near copies are found with datasketch, which is not installed", hint=hint) from error
