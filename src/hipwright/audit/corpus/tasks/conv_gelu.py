"""A convolution that stays with the library, and a bias and GELU that need not."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        return torch.nn.functional.gelu(self.conv(x))


def get_inputs():
    return [torch.randn(2, 3, 13, 17)]


def get_init_inputs():
    return [3, 8]
