"""Softmax of rows."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2048, 8192, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
