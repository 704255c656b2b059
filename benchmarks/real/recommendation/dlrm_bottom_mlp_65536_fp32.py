"""DLRM bottom MLP of MLPerf's configuration at batch 65536: 13 to 512 to 256 to 128, ReLU; features as log(1 + x)."""

from itertools import pairwise

import torch
from torch import nn

BATCH, SIZES = 65536, (13, 512, 256, 128)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(SIZES)])
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, x):
        x = torch.log1p(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def get_inputs():
    return [torch.rand(BATCH, SIZES[0]) * 100.0]
