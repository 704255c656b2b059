"""A 3 x 3 convolution of 256 channels in float16."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(256, 256, 3, padding=1, dtype=torch.float16)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(32, 256, 56, 56, dtype=torch.float16)]
