"""A depthwise convolution of three by three."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64, 1, 3, 3, dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight, padding=1, groups=64)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 128, 128, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
