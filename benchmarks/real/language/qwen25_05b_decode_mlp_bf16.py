"""Qwen2.5-0.5B SwiGLU MLP of one decoded token for each of 8 sequences: width 896, hidden 4864."""

import torch
from torch import nn

BATCH, WIDTH, HIDDEN = 8, 896, 4864
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False, dtype=DTYPE)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(BATCH, WIDTH, dtype=DTYPE)]
