"""Rows divided by their length."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def get_inputs():
    return [torch.randn(23, 144)]


def get_init_inputs():
    return []
