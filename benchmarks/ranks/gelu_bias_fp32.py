"""GELU of rows and a bias."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 4096), torch.randn(4096)]


def get_init_inputs() -> list[object]:
    return []
