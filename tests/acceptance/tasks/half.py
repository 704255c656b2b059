"""Half precision throughout: norm, product, activation."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256).half()
        self.linear = nn.Linear(256, 64).half()

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(self.norm(x)))


def get_inputs():
    return [torch.randn(8, 31, 256).half()]
