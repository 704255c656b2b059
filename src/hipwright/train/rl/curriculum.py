"""The curriculum: draws problems, preferring those that are solved sometimes (docs/rl.md)."""

from __future__ import annotations

import random
from typing import Any

from hipwright.train.rl.settings import CurriculumSettings

PRIOR = 2.0
"""The weight in samples of the prior pass rate of one half, with which unseen problems are drawn early."""


class Curriculum:
    """Draws problems by index, with weight p^a (1-p)^b of their decayed pass rate p, and a uniform share."""

    def __init__(self, count: int, settings: CurriculumSettings) -> None:
        self.settings = settings
        self._passed, self._seen = [0.0] * count, [0.0] * count

    def rate(self, index: int) -> float:
        """The estimated pass rate of a problem."""
        return (self._passed[index] + PRIOR / 2) / (self._seen[index] + PRIOR)

    def weights(self) -> list[float]:
        """The probability of each problem in a single draw."""
        a, b, floor = self.settings.a, self.settings.b, self.settings.floor
        raw = [self.rate(index) ** a * (1 - self.rate(index)) ** b for index in range(len(self._seen))]
        total = sum(raw)
        return [floor / len(raw) + (1 - floor) * weight / total for weight in raw]

    def draw(self, count: int, rng: random.Random) -> list[int]:
        """`count` problems, none repeated before all were drawn."""
        found: list[int] = []
        while len(found) < count:
            weights = self.weights()
            keyed = sorted(range(len(weights)), key=lambda i: rng.expovariate(1.0) / weights[i])
            found += keyed[: count - len(found)]  # Efraimidis and Spirakis: weighted, without replacement
        return found

    def update(self, index: int, passed: int, seen: int) -> None:
        """Records that `passed` of `seen` judged samples were correct."""
        if seen:
            decay = self.settings.decay
            self._passed[index] = decay * self._passed[index] + passed
            self._seen[index] = decay * self._seen[index] + seen

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"passed": list(self._passed), "seen": list(self._seen)}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self._passed, self._seen = list(state["passed"]), list(state["seen"])
