"""Residual, then ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, residual):
        return torch.relu(x + residual)


def get_inputs():
    return [torch.randn(17, 96), torch.randn(17, 96)]


def get_init_inputs():
    return []
