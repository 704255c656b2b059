"""A product, batch norm by statistics of the batch, a scale and softmax."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4096, 4096)
        self.norm = nn.BatchNorm1d(4096, track_running_stats=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.softmax(self.scale * self.norm(self.linear(x)), dim=1)


def get_inputs():
    return [torch.randn(16384, 4096)]
