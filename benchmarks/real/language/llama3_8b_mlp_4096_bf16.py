"""Llama-3 8B SwiGLU MLP at 4096 tokens: width 4096, hidden 14336, no bias (configuration of Meta-Llama-3-8B)."""

import torch
from torch import nn

TOKENS, WIDTH, HIDDEN = 4096, 4096, 14336
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False, dtype=DTYPE)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH, dtype=DTYPE)]
