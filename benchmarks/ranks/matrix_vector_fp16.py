"""A matrix of half precision times a vector."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6144, 6144, dtype=torch.float16) - 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight @ x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(6144, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
