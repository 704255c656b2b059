"""Squeeze-and-excitation: channel means, two small linear layers, a sigmoid gate on the activation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int, reduced: int):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def forward(self, x):
        gate = torch.relu(self.reduce(x.mean(dim=(2, 3))))
        gate = torch.sigmoid(self.expand(gate))
        return x * gate[:, :, None, None]


def get_inputs():
    return [torch.randn(6, 64, 30, 30)]


def get_init_inputs():
    return [64, 16]
