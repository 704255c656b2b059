"""Weighted row sums in float64."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, dtype=torch.float64))

    def forward(self, x):
        return (x * self.weight).sum(dim=-1)


def get_inputs():
    return [torch.randn(21, 130, dtype=torch.float64)]


def get_init_inputs():
    return [130]
