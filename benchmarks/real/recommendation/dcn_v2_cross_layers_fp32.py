"""DCN-v2 as in MLPerf at batch 8192: 3 cross layers of rank 512 over 27 x 128 features."""

import torch
from torch import nn

BATCH, WIDTH, RANK, LAYERS = 8192, 3456, 512, 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(WIDTH, RANK, bias=False) for _ in range(LAYERS)])
        self.up = nn.ModuleList([nn.Linear(RANK, WIDTH) for _ in range(LAYERS)])

    def forward(self, x):
        y = x
        for down, up in zip(self.down, self.up, strict=True):
            y = x * up(down(y)) + y
        return y


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]
