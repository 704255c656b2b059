"""SDXL transformer feed-forward with GEGLU at 32 x 32, batch 8: width 1280, hidden 5120."""

import torch
from torch import nn

BATCH, TOKENS, WIDTH = 8, 1024, 1280
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(value * nn.functional.gelu(gate))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE)]
