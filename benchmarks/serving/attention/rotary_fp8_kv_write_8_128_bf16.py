"""Rotary keys, and values, of 512 tokens as float8_e4m3fn by given scales in a cache's slots: 8 heads of 128."""

import torch
from torch import nn

TOKENS, SLOTS, HEADS, HEAD, LARGEST = 512, 1024, 8, 128, 448.0
DTYPE, CODES = torch.bfloat16, torch.float8_e4m3fn


class Model(nn.Module):
    def forward(self, keys, values, cosine, sine, scales, key_cache, value_cache, slots):
        first, second = keys.float().chunk(2, dim=-1)
        turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
        key_cache[slots] = (turned / scales[0]).clamp(-LARGEST, LARGEST).to(CODES)
        value_cache[slots] = (values.float() / scales[1]).clamp(-LARGEST, LARGEST).to(CODES)


def get_inputs():
    tokens = [torch.randn(TOKENS, HEADS, HEAD, dtype=DTYPE) for _ in range(2)]
    angle = torch.rand(TOKENS, 1, HEAD // 2) * 6.28
    caches = [torch.randn(SLOTS, HEADS, HEAD).to(CODES) for _ in range(2)]
    return [*tokens, angle.cos(), angle.sin(), torch.rand(2) * 0.02 + 0.01, *caches, torch.randperm(SLOTS)[:TOKENS]]
