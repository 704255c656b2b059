"""Residual addition, RMSNorm and symmetric int8 quantisation of each token, 4096 tokens of width 4096."""

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
        normed = total * scale * self.weight.float()
        step = normed.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 127.0
        return torch.round(normed / step).clamp(-128, 127).to(torch.int8), step, total.to(DTYPE)


def get_inputs():
    return [torch.randn(4096, WIDTH, dtype=DTYPE), torch.randn(4096, WIDTH, dtype=DTYPE)]
