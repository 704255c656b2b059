"""A matrix, transposed."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(50, 75)]


def get_init_inputs():
    return []
