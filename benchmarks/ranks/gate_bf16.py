"""SiLU of one half times the other."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 8192, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
