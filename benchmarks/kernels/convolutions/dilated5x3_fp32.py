import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, (5, 3), padding=(4, 2), dilation=2)

    def forward(self, x):
        return nn.functional.silu(self.conv(x))


def get_inputs():
    return [torch.randn(16, 32, 96, 96)]


def get_init_inputs():
    return [32, 48]
