"""The policy that training began from, kept beside the one that moves, and the KL to it (docs/rl.md).

A group without variance pulls at nothing, so an answer that all samples of a prompt give stays, right or wrong, and
Adam makes steps of full size of what little gradient is left. Measured: without this term the last 70 of 94 steps of
the miniature lost a third of the programs that compile (docs/mini.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from hipwright.train.rl.policy import PolicyModel

if TYPE_CHECKING:
    from torch import Tensor

FARTHEST = 10.0
"""Nats: a token that the start gives e^10 times the probability counts as that, or its exponential is all there is."""


class Anchor:
    """The weights that a policy has now, for good: as much memory again as those that are trained."""

    def __init__(self, policy: PolicyModel) -> None:
        self._policy = policy
        self._weights = [one.detach().clone() for one in policy.trainable_parameters()]

    @cached_property
    def key(self) -> str:
        """Of the weights: a run that goes on must begin from the same."""
        found = hashlib.sha256()
        for one in self._weights:
            found.update(one.float().cpu().numpy().tobytes())
        return found.hexdigest()[:20]

    @contextmanager
    def held(self) -> Iterator[None]:
        """The policy is as it was at the start, within the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        """Places change hands, no values: what was captured with the moving weights finds them where they were."""
        for one, kept in zip(self._policy.trainable_parameters(), self._weights, strict=True):
            one.data, kept.data = kept.data, one.data


def estimate(now: Tensor, start: Tensor) -> Tensor:
    """KL(now || start) of tokens that `now` sampled, a token each: e^d - d - 1 with d = log start - log now.

    Never negative, and unbiased: Schulman 2020, "Approximating KL Divergence" (k3); in GRPO's loss: Shao et al. 2024.
    """
    ahead = (start - now).clamp(max=FARTHEST)
    return ahead.exp() - ahead - 1.0
