"""y = relu(a x + b), small: the task of the command-line tests."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.a = nn.Parameter(1.0 + 0.1 * torch.randn(width))
        self.b = nn.Parameter(0.1 * torch.randn(width))

    def forward(self, x):
        return torch.relu(x * self.a + self.b)


def get_inputs():
    return [torch.randn(6, 96)]


def get_init_inputs():
    return [96]
