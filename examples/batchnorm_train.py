"""BatchNorm in training mode: batch statistics, and the running statistics are updated in place."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, momentum=0.1)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(8, 32, 24, 24)]


def get_init_inputs():
    return [32]
