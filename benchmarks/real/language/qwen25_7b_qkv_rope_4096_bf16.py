"""Qwen2.5-7B query, key and value projections with bias, rotary embedding, 4096 tokens: width 3584, 28 and 4 heads."""

import torch
from torch import nn

TOKENS, HEADS, KV_HEADS, HEAD = 4096, 28, 4, 128
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, dtype=DTYPE)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, dtype=DTYPE)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, dtype=DTYPE)

    def forward(self, x, cos, sin):
        steps = x.shape[0]
        q = rotated(self.q(x).view(steps, HEADS, HEAD).transpose(0, 1), cos, sin)
        k = rotated(self.k(x).view(steps, KV_HEADS, HEAD).transpose(0, 1), cos, sin)
        return q, k, self.v(x).view(steps, KV_HEADS, HEAD).transpose(0, 1)


def get_inputs():
    angles = torch.rand(TOKENS, HEAD) * 6.28
    return [torch.randn(TOKENS, WIDTH, dtype=DTYPE), angles.cos().to(DTYPE), angles.sin().to(DTYPE)]
