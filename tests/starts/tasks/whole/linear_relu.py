"""A linear layer, then ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.fc = nn.Linear(rows, columns)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(26, 48)]


def get_init_inputs():
    return [48, 40]
