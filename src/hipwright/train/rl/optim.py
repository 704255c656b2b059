"""AdamW with warm-up, a learning rate that is a function of the step alone, and gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hipwright.train.rl.settings import OptimSettings

if TYPE_CHECKING:
    from torch import Tensor

BETAS = (0.9, 0.95)
COSINE_FLOOR = 0.1
"""The final share of the learning rate of a cosine schedule."""


class Optim:
    """AdamW over the parameters. steps: the end of a cosine schedule. Weight decay applies to matrices only."""

    def __init__(self, parameters: Sequence[Any], settings: OptimSettings, steps: int) -> None:
        import torch

        self.parameters, self.settings, self.steps = list(parameters), settings, steps
        groups = [
            {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": settings.weight_decay},
            {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
        ]
        fused = bool(parameters) and parameters[0].is_cuda
        self.adam = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=BETAS, fused=fused)

    def rate(self, step: int) -> float:
        """The learning rate of step `step`, counted from 0."""
        settings = self.settings
        ramp = min(1.0, (step + 1) / max(settings.warmup, 1))
        if settings.schedule == "constant" or step < settings.warmup:
            return settings.learning_rate * ramp
        done = min(1.0, (step - settings.warmup) / max(self.steps - settings.warmup, 1))
        return settings.learning_rate * (COSINE_FLOOR + (1 - COSINE_FLOOR) * (1 + math.cos(math.pi * done)) / 2)

    def step(self, step: int) -> Tensor:
        """Applies and clears the gradients; returns their norm before clipping. A norm that is not finite skips the
        update."""
        import torch

        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        for group in self.adam.param_groups:
            group["lr"] = self.rate(step)
        if bool(norm.isfinite()):
            self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        state: dict[str, Any] = self.adam.state_dict()
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`."""
        self.adam.load_state_dict(state)
