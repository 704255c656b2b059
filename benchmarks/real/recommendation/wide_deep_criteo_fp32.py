"""Wide and Deep on Criteo at batch 8192: 26 tables of 100000 x 16 as one, 13 dense features, 1024, 512 and 256."""

from itertools import pairwise

import torch
from torch import nn

BATCH, FIELDS, ROWS, WIDTH, DENSE, SIZES = 8192, 26, 100000, 16, 13, (1024, 512, 256)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(FIELDS * ROWS, WIDTH)
        self.register_buffer("offsets", torch.arange(FIELDS) * ROWS)
        sizes = (FIELDS * WIDTH + DENSE, *SIZES)
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(sizes)])
        self.wide, self.out = nn.Linear(DENSE, 1), nn.Linear(SIZES[-1], 1)

    def forward(self, dense, ids):
        x = torch.cat((self.table(ids + self.offsets).flatten(1), dense), dim=1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return torch.sigmoid(self.out(x) + self.wide(dense))


def get_inputs():
    return [torch.randn(BATCH, DENSE), torch.randint(0, ROWS, (BATCH, FIELDS))]
