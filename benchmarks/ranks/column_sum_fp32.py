"""Sums of columns."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 2048)]


def get_init_inputs() -> list[object]:
    return []
