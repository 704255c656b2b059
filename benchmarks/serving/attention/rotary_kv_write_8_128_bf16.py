"""Rotary embedding of the keys of 512 tokens, and keys and values written to a cache's slots: 8 heads of 128."""

import torch
from torch import nn

TOKENS, SLOTS, HEADS, HEAD = 512, 4096, 8, 128
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, keys, values, cosine, sine, key_cache, value_cache, slots):
        first, second = keys.float().chunk(2, dim=-1)
        turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
        key_cache[slots] = turned.to(keys.dtype)
        value_cache[slots] = values


def get_inputs():
    tokens = [torch.randn(TOKENS, HEADS, HEAD, dtype=DTYPE) for _ in range(2)]
    angle = torch.rand(TOKENS, 1, HEAD // 2) * 6.28
    caches = [torch.randn(SLOTS, HEADS, HEAD, dtype=DTYPE) for _ in range(2)]
    return [*tokens, angle.cos(), angle.sin(), *caches, torch.randperm(SLOTS)[:TOKENS]]
