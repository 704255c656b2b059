"""SDXL cross-attention block at 32 x 32, batch 8: width 1280, 20 heads of 64, 77 text tokens of width 2048."""

import torch
from torch import nn

BATCH, TOKENS, TEXT, CONTEXT, HEADS, HEAD = 8, 1024, 77, 2048, 20, 64
WIDTH = HEADS * HEAD
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(CONTEXT, WIDTH, bias=False)
        self.v = nn.Linear(CONTEXT, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.to(DTYPE)

    def heads(self, x):
        return x.view(*x.shape[:2], HEADS, HEAD).transpose(1, 2)

    def forward(self, x, context):
        q, k, v = self.heads(self.q(self.norm(x))), self.heads(self.k(context)), self.heads(self.v(context))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH, dtype=DTYPE), torch.randn(BATCH, TEXT, CONTEXT, dtype=DTYPE)]
