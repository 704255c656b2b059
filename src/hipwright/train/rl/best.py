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
    """Keeps the weights that sampled the last of the `window` consecutive batches with the highest mean reward so far.

    A batch's reward is that of the weights that sampled it: the update that follows it may be the one that spoils them.
    The rewards are those of the training batches: where the curriculum prefers harder problems as the policy improves,
    they understate later weights. Each batch costs a copy of the weights on the CPU until its reward is known.
    """

    def __init__(self, policy: PolicyModel, window: int) -> None:
        self._policy = policy
        self._recent: deque[float] = deque(maxlen=window)
        self._sampled: dict[int, dict[str, Any]] = {}
        self._kept: dict[str, Any] = {}
        self.step, self.reward = 0, float("-inf")

    def sampled(self, step: int) -> None:
        """Notes that the current weights sample the batch of a step."""
        self._sampled[step] = self._policy.state()

    def update(self, step: int, reward: float) -> None:
        """Records the reward of a step's batch, which `sampled` has announced. One that is not finite is ignored."""
        weights = self._sampled.pop(step)
        if not isfinite(reward):
            return
        self._recent.append(reward)
        mean = fmean(self._recent)
        if len(self._recent) == self._recent.maxlen and mean > self.reward:
            self.step, self.reward = step, mean
            self._kept = weights

    def restore(self) -> None:
        """Loads the kept weights into the policy; a run shorter than the window keeps its last ones."""
        if self._kept:
            self._policy.load(self._kept)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "recent": list(self._recent),
            "sampled": self._sampled,
            "kept": self._kept,
            "step": self.step,
            "reward": self.reward,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self._recent.clear()
        self._recent.extend(state["recent"])
        self._sampled = dict(state["sampled"])
        self._kept, self.step, self.reward = state["kept"], state["step"], state["reward"]
