"""A gate with a scale and a shift."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale, shift):
        super().__init__()
        self.scale = scale
        self.shift = shift

    def forward(self, x):
        return torch.sigmoid(x * self.scale + self.shift) * x


def get_inputs():
    return [torch.randn(6, 111)]


def get_init_inputs():
    return [1.5, -0.25]
