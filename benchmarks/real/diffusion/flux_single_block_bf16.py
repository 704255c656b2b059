"""FLUX.1 single-stream block at 1024 x 1024: 4608 tokens, width 3072, 24 heads of 128, hidden 12288, rotary."""

import torch
from torch import nn

TOKENS, HEADS, HEAD, HIDDEN = 4608, 24, 128, 12288
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.modulation = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False)
        self.first, self.second = nn.Linear(WIDTH, 3 * WIDTH + HIDDEN), nn.Linear(WIDTH + HIDDEN, WIDTH)
        self.q_scale, self.k_scale = nn.Parameter(torch.ones(HEAD)), nn.Parameter(torch.ones(HEAD))
        self.to(DTYPE)

    def rotated(self, x, scale, cos, sin):
        wide = x.float()
        x = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale
        even, odd = x.float().view(*x.shape[:-1], -1, 2).unbind(-1)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def forward(self, x, condition, angles):
        batch, tokens, _ = x.shape
        shift, scale, gate = self.modulation(nn.functional.silu(condition))[:, None].chunk(3, dim=-1)
        inner = self.first((1.0 + scale) * self.norm(x) + shift)
        qkv, hidden = inner.split((3 * WIDTH, HIDDEN), dim=-1)
        q, k, v = qkv.view(batch, tokens, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        cos, sin = angles.cos(), angles.sin()
        q, k = self.rotated(q, self.q_scale, cos, sin), self.rotated(k, self.k_scale, cos, sin)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, WIDTH)
        hidden = nn.functional.gelu(hidden, approximate="tanh")
        return x + gate * self.second(torch.cat((mixed, hidden), dim=-1))


def get_inputs():
    return [
        torch.randn(1, TOKENS, WIDTH, dtype=DTYPE),
        torch.randn(1, WIDTH, dtype=DTYPE),
        torch.rand(TOKENS, HEAD // 2) * 6.28,
    ]
