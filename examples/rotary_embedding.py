"""Rotary position embedding of queries in the half-split layout."""

import torch
from torch import nn

TOKENS, WIDTH = 192, 64


class Model(nn.Module):
    def __init__(self, tokens: int, width: int):
        super().__init__()
        steps = torch.arange(0, width, 2, dtype=torch.float32) / width
        angles = torch.outer(torch.arange(tokens, dtype=torch.float32), 10000.0**-steps)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, q):
        first, second = q.chunk(2, dim=-1)
        return torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1)


def get_inputs():
    return [torch.randn(2, 12, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH]
