"""Depth to space by a factor of two, then clamp to the image range."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, factor: int):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.clamp(F.pixel_shuffle(x, self.factor) * 0.5 + 0.5, 0.0, 1.0)


def get_inputs():
    return [torch.randn(4, 12, 80, 72)]


def get_init_inputs():
    return [2]
