"""Cumulative sums of the elements that a mask keeps."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, keep):
        return torch.cumsum(x * keep, dim=1)


def get_inputs():
    return [torch.randn(16384, 32768), torch.rand(16384, 32768) > 0.5]
