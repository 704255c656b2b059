"""The softmax of one long row."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 131072, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
