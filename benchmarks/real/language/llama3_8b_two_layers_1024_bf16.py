"""Two Llama-3 8B decoder layers at 1024 tokens: width 4096, 32 heads of 128, 8 key-value heads, hidden 14336."""

import torch
from torch import nn

TOKENS, HEADS, KV_HEADS, HEAD, HIDDEN, LAYERS = 1024, 32, 8, 128, 14336, 2
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=DTYPE))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([Norm(), Norm()])
        self.q = nn.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False, dtype=DTYPE)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False, dtype=DTYPE)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False, dtype=DTYPE)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False, dtype=DTYPE)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False, dtype=DTYPE)

    def heads(self, x, count, cos, sin):
        x = x.view(*x.shape[:2], count, HEAD).transpose(1, 2)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def forward(self, x, cos, sin):
        batch, steps, _ = x.shape
        y = self.norms[0](x)
        q, k = self.heads(self.q(y), HEADS, cos, sin), self.heads(self.k(y), KV_HEADS, cos, sin)
        v = self.v(y).view(batch, steps, KV_HEADS, HEAD).transpose(1, 2)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, WIDTH))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])

    def forward(self, x, angles):
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


def get_inputs():
    return [torch.randn(1, TOKENS, WIDTH, dtype=DTYPE), torch.rand(TOKENS, HEAD // 2) * 6.0]
