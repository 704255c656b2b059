"""A transformer's feed-forward block: linear, tanh-approximated GELU, linear."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


def get_inputs():
    return [torch.randn(4, 64, 160)]


def get_init_inputs():
    return [160, 480]
