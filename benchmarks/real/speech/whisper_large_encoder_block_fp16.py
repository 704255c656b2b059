"""Whisper large-v3 encoder block, 4 x 1500 frames: width 1280, 20 heads of 64, hidden 5120."""

import torch
from torch import nn

BATCH, FRAMES, HEADS, HEAD = 4, 1500, 20, 64
WIDTH = HEADS * HEAD
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (f(y).view(*x.shape[:2], HEADS, HEAD).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH, dtype=DTYPE)]
