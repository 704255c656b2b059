"""Group norm of eight groups."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(8, 64)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 64, 256, 256)]
