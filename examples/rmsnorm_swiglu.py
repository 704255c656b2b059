"""RMSNorm of a packed gate|up projection, then the SwiGLU gate: the demo task."""

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN = 1024


class Model(nn.Module):
    def __init__(self, hidden: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.1 * torch.randn(2 * hidden))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        normed = x * torch.rsqrt(variance + self.eps) * self.weight
        gate, up = normed.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(4, 128, 2 * HIDDEN)]


def get_init_inputs():
    return [HIDDEN, 1e-6]
