import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, 31, padding=15)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(16, 32, 16384)]


def get_init_inputs():
    return [32, 32]
