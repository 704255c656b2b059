"""A convolution of each channel alone."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(128, 128, 3, padding=1, groups=128)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(64, 128, 256, 256)]
