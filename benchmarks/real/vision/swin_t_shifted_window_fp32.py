"""Swin-T shifted window attention of the first stage, 32 images: 56 x 56, width 96, 3 heads, window 7, shift 3."""

import torch
from torch import nn

BATCH, WINDOWS, WINDOW, SHIFT, HEADS, HEAD = 32, 8, 7, 3, 3, 32
WIDTH, SIDE, AREA = HEADS * HEAD, WINDOWS * WINDOW, WINDOW * WINDOW


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS) * 0.02)
        place = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
        apart = place[:, :, None] - place[:, None, :] + WINDOW - 1
        self.register_buffer("index", apart[0] * (2 * WINDOW - 1) + apart[1])
        line = torch.arange(SIDE)
        strip = (line >= SIDE - WINDOW).long() + (line >= SIDE - SHIFT).long()
        region = (strip[:, None] * 3 + strip).view(WINDOWS, WINDOW, WINDOWS, WINDOW).transpose(1, 2).reshape(-1, AREA)
        self.register_buffer("mask", torch.where(region[:, None, :] == region[:, :, None], 0.0, -100.0))

    def forward(self, x):
        batch = x.shape[0]
        x = torch.roll(x, (-SHIFT, -SHIFT), dims=(1, 2))
        x = x.view(batch, WINDOWS, WINDOW, WINDOWS, WINDOW, WIDTH).transpose(2, 3).reshape(-1, AREA, WIDTH)
        q, k, v = self.qkv(x).view(-1, AREA, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        scores = (q * HEAD**-0.5) @ k.transpose(-1, -2) + self.bias[self.index].permute(2, 0, 1)
        scores = scores.view(batch, WINDOWS * WINDOWS, HEADS, AREA, AREA) + self.mask[:, None]
        mixed = torch.softmax(scores, dim=-1).view(-1, HEADS, AREA, AREA) @ v
        x = self.out(mixed.transpose(1, 2).reshape(-1, AREA, WIDTH))
        x = x.view(batch, WINDOWS, WINDOWS, WINDOW, WINDOW, WIDTH).transpose(2, 3).reshape(batch, SIDE, SIDE, WIDTH)
        return torch.roll(x, (SHIFT, SHIFT), dims=(1, 2))


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE, WIDTH)]
