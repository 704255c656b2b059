"""The epilogue of a gated MLP in bfloat16: two bias adds, a tanh-GELU gate, a residual."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 512


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gate_bias = nn.Parameter(torch.randn(width, dtype=torch.bfloat16))
        self.up_bias = nn.Parameter(torch.randn(width, dtype=torch.bfloat16))

    def forward(self, gate, up, residual):
        gated = F.gelu(gate + self.gate_bias, approximate="tanh") * (up + self.up_bias)
        return gated + residual


def get_inputs():
    return [torch.randn(4, 100, WIDTH).to(torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [WIDTH]
