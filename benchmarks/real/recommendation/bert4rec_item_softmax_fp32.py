"""BERT4Rec loss over MovieLens-20M's 26744 items for 4096 masked places: width 256, GELU, LayerNorm, tied embedding."""

import torch
from torch import nn

PLACES, WIDTH, ITEMS = 4096, 256, 26744


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.items = nn.Parameter(torch.randn(ITEMS, WIDTH) * 0.02)
        self.bias = nn.Parameter(torch.zeros(ITEMS))

    def forward(self, x, target):
        x = self.norm(nn.functional.gelu(self.dense(x)))
        return nn.functional.cross_entropy(nn.functional.linear(x, self.items, self.bias), target, reduction="none")


def get_inputs():
    return [torch.randn(PLACES, WIDTH), torch.randint(0, ITEMS, (PLACES,))]
