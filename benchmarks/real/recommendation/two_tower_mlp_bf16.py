"""Two-tower user network at batch 32768: 1024 to 512 to 256 to 128 with ReLU, then unit length."""

from itertools import pairwise

import torch
from torch import nn

BATCH, SIZES = 32768, (1024, 512, 256, 128)
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, o, dtype=DTYPE) for i, o in pairwise(SIZES)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return nn.functional.normalize(self.layers[-1](x).float(), dim=-1).to(x.dtype)


def get_inputs():
    return [torch.randn(BATCH, SIZES[0], dtype=DTYPE)]
