"""A convolution in three dimensions of few channels, softmax over them, two pools."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(8, 16, 3)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x):
        return self.pool(self.pool(torch.softmax(self.conv(x), dim=1)))


def get_inputs():
    return [torch.randn(128, 8, 16, 32, 32)]
