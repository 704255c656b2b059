"""A convolution of each channel alone, then one of 1 x 1."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.point = nn.Conv2d(64, 128, 1)

    def forward(self, x):
        return self.point(self.depth(x))


def get_inputs():
    return [torch.randn(32, 64, 256, 256)]
