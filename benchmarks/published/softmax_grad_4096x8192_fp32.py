"""The gradient of a softmax over long rows of float32, from its result."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y * (x - (x * y).sum(-1, keepdim=True))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 8192, dtype=torch.float32), torch.randn(4096, 8192, dtype=torch.float32)]


def get_init_inputs() -> list[object]:
    return []
