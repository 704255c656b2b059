"""A linear layer of 4096 inputs and 4096 outputs with ReLU, of 4096 rows."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4096, 4096)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(4096, 4096)]
