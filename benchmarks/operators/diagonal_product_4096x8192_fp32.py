"""A diagonal matrix times a matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.diag(x) @ y


def get_inputs():
    return [torch.randn(4096), torch.randn(4096, 8192)]
