"""The weights of the best stretch of a run, which training may end with instead of its last ones (docs/rl.md).

A policy gradient can lose within minutes what it had learnt, and nothing of the held-out tasks may decide when to stop.
What it is paid for while it trains may.
"""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import fmean
from typing import Any

from hipwright.train.rl.policy import PolicyModel


class Best:
    """Keeps the weights after the `window` steps in a row with the highest mean reward so far.

    The rewards are those of the training batches, so where the curriculum turns to harder problems as the policy
    improves they understate the later weights.
    """

    def __init__(self, policy: PolicyModel, window: int) -> None:
        self._policy = policy
        self._recent: deque[float] = deque(maxlen=window)
        self._kept: dict[str, Any] = {}
        self.step, self.reward = 0, float("-inf")

    def look(self, step: int, reward: float) -> None:
        """After step's update. A batch that says nothing counts for nothing."""
        if not isfinite(reward):
            return
        self._recent.append(reward)
        mean = fmean(self._recent)
        if len(self._recent) == self._recent.maxlen and mean > self.reward:
            self.step, self.reward = step, mean
            self._kept = self._policy.state()

    def restore(self) -> None:
        """Give the policy the weights that were kept; a run shorter than a window keeps its last ones."""
        if self._kept:
            self._policy.load(self._kept)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"recent": list(self._recent), "kept": self._kept, "step": self.step, "reward": self.reward}

    def load(self, state: dict[str, Any]) -> None:
        """Put `state()` back."""
        self._recent.clear()
        self._recent.extend(state["recent"])
        self._kept, self.step, self.reward = state["kept"], state["step"], state["reward"]
