"""The weights of the best steps of a run, which training may end with instead of its last ones (docs/rl.md).

A policy gradient can collapse within minutes. Held-out tasks may not decide when to stop; the training rewards may.
"""

from __future__ import annotations

from collections import deque
from math import isfinite
from statistics import fmean
from typing import Any

from hipwright.train.rl.policy import PolicyModel


class BestWeights:
    """Keeps the weights after the `window` consecutive steps with the highest mean reward so far.

    The rewards are those of the training batches: where the curriculum prefers harder problems as the policy improves,
    they understate later weights.
    """

    def __init__(self, policy: PolicyModel, window: int) -> None:
        self._policy = policy
        self._recent: deque[float] = deque(maxlen=window)
        self._kept: dict[str, Any] = {}
        self.step, self.reward = 0, float("-inf")

    def update(self, step: int, reward: float) -> None:
        """Records the batch reward of a step, after its update. A reward that is not finite is ignored."""
        if not isfinite(reward):
            return
        self._recent.append(reward)
        mean = fmean(self._recent)
        if len(self._recent) == self._recent.maxlen and mean > self.reward:
            self.step, self.reward = step, mean
            self._kept = self._policy.state()

    def restore(self) -> None:
        """Loads the kept weights into the policy; a run shorter than the window keeps its last ones."""
        if self._kept:
            self._policy.load(self._kept)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"recent": list(self._recent), "kept": self._kept, "step": self.step, "reward": self.reward}

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self._recent.clear()
        self._recent.extend(state["recent"])
        self._kept, self.step, self.reward = state["kept"], state["step"], state["reward"]
