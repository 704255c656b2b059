"""Maxima of dilated windows in three dimensions."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool3d(3, stride=2, padding=1, dilation=3)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(16, 32, 64, 128, 128)]
