import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.bfloat16()

    def forward(self, x):
        batch, steps, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def get_inputs():
    return [torch.randn(8, 128, 256).bfloat16()]


def get_init_inputs():
    return [256, 4]
