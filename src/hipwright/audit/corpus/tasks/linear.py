"""A linear layer in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.proj = nn.Linear(inner, outer)

    def forward(self, x):
        return self.proj(x)


def get_inputs():
    return [torch.randn(48, 96)]


def get_init_inputs():
    return [96, 40]
