"""Products of 128 pairs of matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.bmm(x, y)


def get_inputs():
    return [torch.randn(128, 512, 1024), torch.randn(128, 1024, 512)]
