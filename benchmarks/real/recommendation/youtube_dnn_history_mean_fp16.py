"""YouTube DNN: mean of 50 watched of one million videos of width 256, batch 8192, 1024 to 512 to 256."""

from itertools import pairwise

import torch
from torch import nn

BATCH, HISTORY, VIDEOS, WIDTH, SIZES = 8192, 50, 1000000, 256, (1024, 512, 256)
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (WIDTH, *SIZES)
        self.layers = nn.ModuleList([nn.Linear(i, o, dtype=DTYPE) for i, o in pairwise(sizes)])

    def forward(self, table, watched):
        x = nn.functional.embedding(watched, table).float().mean(dim=1).to(table.dtype)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def get_inputs():
    return [torch.randn(VIDEOS, WIDTH, dtype=DTYPE), torch.randint(0, VIDEOS, (BATCH, HISTORY))]
