"""Tanh GELU of one half of a packed projection times the other, width 9216, 2048 tokens and 32."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 9216
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up


def get_inputs():
    return [torch.randn(2048, 2 * WIDTH, dtype=DTYPE)]


def get_input_groups():
    return [[torch.randn(32, 2 * WIDTH, dtype=DTYPE)]]
