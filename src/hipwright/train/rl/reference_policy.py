"""The reference policy, with the weights at the start of training, and the KL to it (docs/rl.md).

A group without variance has no gradient, so without the KL nothing corrects an answer that all samples of a prompt
give, and Adam normalises the small remaining gradient to steps of full size.
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


class ReferencePolicy:
    """A copy of the trainable weights that a policy has now, on the same device."""

    def __init__(self, policy: PolicyModel) -> None:
        self._policy = policy
        self._weights = [one.detach().clone() for one in policy.trainable_parameters()]

    @cached_property
    def key(self) -> str:
        """A hash of the weights, which a resumed run must start from again; 20 hex digits."""
        found = hashlib.sha256()
        for one in self._weights:
            found.update(one.float().cpu().numpy().tobytes())
        return found.hexdigest()[:20]

    @contextmanager
    def active(self) -> Iterator[None]:
        """A block in which the policy has the reference weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        """Exchanges the storages and copies no values, so that captured graphs keep the addresses they read."""
        for one, kept in zip(self._policy.trainable_parameters(), self._weights, strict=True):
            one.data, kept.data = kept.data, one.data


def kl_estimate(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The KL to the reference, estimated for each sampled token: d^2 / 2 with d = reference - logprobs.

    Never negative. Its gradient is -d times that of the log-probability; the mean over the policy's own samples is the
    gradient of the KL. That of e^d - d - 1 (k3) is 1 - e^d times it, so that one token which became improbable
    outweighs a batch. Sources: Schulman 2020, "Approximating KL Divergence" (k2); Tang and Munos 2025, "On a few
    pitfalls in KL divergence gradient estimation for RL".
    """
    return (reference - logprobs).square() / 2
