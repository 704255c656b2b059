"""Cumulative sums without the element itself."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        total = torch.cumsum(x, dim=1)
        return torch.cat([torch.zeros_like(total[:, :1]), total[:, :-1]], dim=1)


def get_inputs():
    return [torch.randn(16384, 32768)]
