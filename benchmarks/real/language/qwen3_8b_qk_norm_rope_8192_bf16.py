"""Qwen3-8B RMSNorm of each head of queries and keys, then rotary embedding, 8192 tokens: 32 and 8 heads of 128."""

import torch
from torch import nn

TOKENS, HEADS, KV_HEADS, HEAD = 8192, 32, 8, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_norm = nn.RMSNorm(HEAD, eps=1e-6, dtype=DTYPE)
        self.k_norm = nn.RMSNorm(HEAD, eps=1e-6, dtype=DTYPE)

    def rotated(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def forward(self, q, k, cos, sin):
        q, k = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2)
        return self.rotated(q, cos, sin), self.rotated(k, cos, sin)


def get_inputs():
    angles = torch.rand(TOKENS, HEAD) * 6.28
    return [
        torch.randn(1, TOKENS, HEADS, HEAD, dtype=DTYPE),
        torch.randn(1, TOKENS, KV_HEADS, HEAD, dtype=DTYPE),
        angles.cos().to(DTYPE),
        angles.sin().to(DTYPE),
    ]
