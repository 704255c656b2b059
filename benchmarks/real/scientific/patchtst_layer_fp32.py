"""PatchTST encoder layer on 128 windows of 7 series of ETTh1: 42 patches, width 128, 16 heads, hidden 256."""

import torch
from torch import nn

BATCH, SERIES, PATCHES, HEADS, HEAD, HIDDEN = 128, 7, 42, 16, 8, 256
WIDTH = HEADS * HEAD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(WIDTH)])
        self.eval()

    def forward(self, x):
        rows, patches, _ = x.shape
        q, k, v = self.qkv(x).view(rows, patches, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-1, -2) * HEAD**-0.5, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, patches, WIDTH))
        x = self.norms[0](x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(nn.functional.gelu(self.up(x)))
        return self.norms[1](x.transpose(1, 2)).transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH * SERIES, PATCHES, WIDTH)]
