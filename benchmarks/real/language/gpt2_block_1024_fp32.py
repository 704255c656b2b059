"""GPT-2 (124M) block, 4 x 1024 tokens: width 768, 12 heads, hidden 3072, GELU by tanh, causal."""

import torch
from torch import nn

BATCH, TOKENS, HEADS, HEAD = 4, 1024, 12, 64
WIDTH = HEADS * HEAD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, steps, _ = x.shape
        parts = self.qkv(self.before(x)).split(WIDTH, dim=-1)
        q, k, v = (one.view(batch, steps, HEADS, HEAD).transpose(1, 2) for one in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh"))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]
