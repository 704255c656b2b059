"""The sum of 2**27 numbers."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2**27, dtype=torch.float32)]


def get_init_inputs() -> list[object]:
    return []
