"""Rows over their root mean square."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(2048, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 2048, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
