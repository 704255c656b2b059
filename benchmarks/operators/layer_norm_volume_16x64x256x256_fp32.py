"""Layer norm over channels, rows and columns."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((64, 256, 256))

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16, 64, 256, 256)]
