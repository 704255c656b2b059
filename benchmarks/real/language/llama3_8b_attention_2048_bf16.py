"""Llama-3 8B self-attention, 2 x 2048 tokens: width 4096, 32 heads of 128, 8 key-value heads, rotary base 500000."""

import torch
from torch import nn

BATCH, TOKENS, HEADS, KV_HEADS, HEAD = 2, 2048, 32, 8, 128
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False, dtype=DTYPE)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False, dtype=DTYPE)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False, dtype=DTYPE)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False, dtype=DTYPE)
        self.register_buffer("frequencies", 500000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))

    def forward(self, x):
        batch, steps, _ = x.shape
        angles = torch.arange(steps, device=x.device).float()[:, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q = rotated(self.q(x).view(batch, steps, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = rotated(self.k(x).view(batch, steps, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.v(x).view(batch, steps, KV_HEADS, HEAD).transpose(1, 2)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, steps, WIDTH))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE)]
