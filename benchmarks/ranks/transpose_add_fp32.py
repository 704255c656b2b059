"""A matrix and the transpose of another."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.t()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(3072, 3072), torch.randn(3072, 3072)]


def get_init_inputs() -> list[object]:
    return []
