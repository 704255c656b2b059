"""ViT-B/16 encoder block, 64 images: 197 tokens, width 768, 12 heads, hidden 3072."""

import torch
from torch import nn

BATCH, TOKENS, HEADS, HEAD = 64, 197, 12, 64
WIDTH = HEADS * HEAD
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, tokens, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE)]
