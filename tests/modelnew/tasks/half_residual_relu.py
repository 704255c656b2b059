"""A residual with a relu, in half precision."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y):
        return torch.relu(x + self.alpha * y)


def get_inputs():
    return [torch.randn(5, 66).half(), torch.randn(5, 66).half()]


def get_init_inputs():
    return [0.5]
