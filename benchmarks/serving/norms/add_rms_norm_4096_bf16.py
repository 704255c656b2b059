"""Residual addition and RMSNorm of width 4096, prefill of 4096 tokens, decode of 8 and 256; returns both."""

import torch
from torch import nn

WIDTH, EPS = 4096, 1e-6
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=DTYPE))

    def forward(self, x, residual):
        total = x.float() + residual.float()
        scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + EPS)
        return (total * scale).to(DTYPE) * self.weight, total.to(DTYPE)


def rows(tokens):
    return [torch.randn(tokens, WIDTH, dtype=DTYPE), torch.randn(tokens, WIDTH, dtype=DTYPE)]


def get_inputs():
    return rows(4096)


def get_input_groups():
    return [rows(8), rows(256)]
