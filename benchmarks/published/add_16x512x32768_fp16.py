"""The sum of two tensors."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 512, 32768, dtype=torch.float16), torch.randn(16, 512, 32768, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
