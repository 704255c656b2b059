"""InstanceNorm with affine parameters, then a leaky ReLU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, channels: int, slope: float):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(self.norm(x), self.slope)


def get_inputs():
    return [torch.randn(4, 24, 48, 44)]


def get_init_inputs():
    return [24, 0.15]
