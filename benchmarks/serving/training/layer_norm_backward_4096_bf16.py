"""Gradients of LayerNorm by input, weight and bias, written out, 4096 tokens of width 4096."""

import torch
from torch import nn

WIDTH = 4096
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=DTYPE), requires_grad=False)

    def forward(self, gradient, x, mean, rstd):
        normed = (x.float() - mean) * rstd
        wide = gradient.float()
        scaled = wide * self.weight.float()
        along = (scaled * normed).mean(dim=-1, keepdim=True)
        back = rstd * (scaled - scaled.mean(dim=-1, keepdim=True) - normed * along)
        return back.to(DTYPE), (wide * normed).sum(dim=0), wide.sum(dim=0)


def get_inputs():
    gradient, x = torch.randn(4096, WIDTH, dtype=DTYPE), torch.randn(4096, WIDTH, dtype=DTYPE)
    return [gradient, x, torch.randn(4096, 1) * 0.1, torch.rand(4096, 1) + 0.5]
