"""DiT-XL/2 block with adaLN-Zero, 32 latents of 256: 256 tokens, width 1152, 16 heads of 72."""

import torch
from torch import nn

BATCH, TOKENS, HEADS, HEAD = 32, 256, 16, 72
WIDTH = HEADS * HEAD
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, x, condition):
        batch, tokens, _ = x.shape
        parts = self.modulation(nn.functional.silu(condition))[:, None].chunk(6, dim=-1)
        y = self.norm(x) * (1.0 + parts[1]) + parts[0]
        q, k, v = self.qkv(y).view(batch, tokens, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + parts[2] * self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        y = self.norm(x) * (1.0 + parts[4]) + parts[3]
        return x + parts[5] * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE), torch.randn(BATCH, WIDTH, dtype=DTYPE)]
