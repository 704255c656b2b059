"""Two linear layers with a ReLU between them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, hidden, outer):
        super().__init__()
        self.up = nn.Linear(inner, hidden)
        self.down = nn.Linear(hidden, outer)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def get_inputs():
    return [torch.randn(20, 48)]


def get_init_inputs():
    return [48, 64, 24]
