"""Conformer-L half-step feed-forward, 64 x 1000 frames: width 512, hidden 2048, SiLU, residual of one half."""

import torch
from torch import nn

BATCH, FRAMES, WIDTH, HIDDEN = 64, 1000, 512, 2048
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        return x + 0.5 * self.down(nn.functional.silu(self.up(self.norm(x))))


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH, dtype=DTYPE)]
