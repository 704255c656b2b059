"""RMSNorm of keys' heads, rotary embedding, and float8_e4m3fn in a cache's slots: 1024 tokens, 4 heads of 128."""

import torch
from torch import nn

TOKENS, SLOTS, HEADS, HEAD, EPS, LARGEST = 1024, 2048, 4, 128, 1e-6, 448.0
DTYPE, CODES = torch.bfloat16, torch.float8_e4m3fn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HEAD, dtype=DTYPE))

    def forward(self, keys, cosine, sine, scale, cache, slots):
        x = keys.float()
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS) * self.weight.float()
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
        cache[slots] = (turned / scale).clamp(-LARGEST, LARGEST).to(CODES)


def get_inputs():
    angle = torch.rand(TOKENS, 1, HEAD // 2) * 6.28
    tables = [angle.cos(), angle.sin(), torch.rand(1) * 0.02 + 0.01]
    cache = torch.randn(SLOTS, HEADS, HEAD).to(CODES)
    return [torch.randn(TOKENS, HEADS, HEAD, dtype=DTYPE), *tables, cache, torch.randperm(SLOTS)[:TOKENS]]
