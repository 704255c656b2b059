"""DLRM top MLP of MLPerf's configuration at batch 32768: 479 to 1024, 1024, 512, 256 and 1, ReLU, sigmoid."""

from itertools import pairwise

import torch
from torch import nn

BATCH, SIZES = 32768, (479, 1024, 1024, 512, 256, 1)
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, o, dtype=DTYPE) for i, o in pairwise(SIZES)])
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return torch.sigmoid(self.layers[-1](x))


def get_inputs():
    return [torch.randn(BATCH, SIZES[0], dtype=DTYPE)]
