"""A transposed convolution in three dimensions, a scale, pooling and a clamp."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose3d(16, 32, 3, stride=2, padding=1)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(self.conv(x) * 0.5).clamp(0, 1)


def get_inputs():
    return [torch.randn(16, 16, 16, 32, 32)]
