"""A linear layer of 8192 inputs and 8192 outputs with ReLU, of 1024 rows."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8192, 8192)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(1024, 8192)]
