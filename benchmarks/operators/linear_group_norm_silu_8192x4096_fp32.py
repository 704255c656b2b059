"""A product, group norm and two multiplications by sigmoids."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4096, 4096)
        self.norm = nn.GroupNorm(64, 4096)
        self.weight = nn.Parameter(torch.randn(4096))

    def forward(self, x):
        y = self.norm(self.linear(x))
        y = y * torch.sigmoid(y) * self.weight
        return y * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(8192, 4096)]
