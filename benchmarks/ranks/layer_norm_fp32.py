"""Layer norm of rows."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3072))
        self.bias = nn.Parameter(torch.rand(3072))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (3072,), self.weight, self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 3072)]


def get_init_inputs() -> list[object]:
    return []
