"""Rotary embedding by halves of queries and keys, 64 and 8 heads of 128, 2048 tokens by their positions."""

import torch
from torch import nn

TOKENS, HEADS, GROUPS, HEAD, LONGEST = 2048, 64, 8, 128, 4096
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        rates = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2).float() / HEAD)
        angles = torch.outer(torch.arange(LONGEST).float(), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x, cos, sin):
        first, second = x.float().chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(DTYPE)

    def forward(self, q, k, positions):
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        return self.turned(q, cos, sin), self.turned(k, cos, sin)


def get_inputs():
    q = torch.randn(TOKENS, HEADS, HEAD, dtype=DTYPE)
    return [q, torch.randn(TOKENS, GROUPS, HEAD, dtype=DTYPE), torch.randint(0, LONGEST, (TOKENS,))]
