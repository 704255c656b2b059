"""Conformer-L attention with Transformer-XL relative positions, 8 x 400 frames: 8 heads of 64, shifted scores."""

import torch
from torch import nn

BATCH, FRAMES, HEADS, HEAD = 8, 400, 8, 64
WIDTH = HEADS * HEAD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.v, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.place = nn.Linear(WIDTH, WIDTH, bias=False)
        self.content_bias = nn.Parameter(torch.randn(HEADS, 1, HEAD) * 0.1)
        self.place_bias = nn.Parameter(torch.randn(HEADS, 1, HEAD) * 0.1)

    def heads(self, x):
        return x.view(x.shape[0], -1, HEADS, HEAD).transpose(1, 2)

    def forward(self, x, places):
        batch, frames, _ = x.shape
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        content = (q + self.content_bias) @ k.transpose(-1, -2)
        moved = (q + self.place_bias) @ self.heads(self.place(places)).transpose(-1, -2)
        moved = nn.functional.pad(moved, (1, 0)).view(batch, HEADS, -1, frames)[:, :, 1:]
        moved = moved.reshape(batch, HEADS, frames, 2 * frames - 1)[..., :frames]
        weights = torch.softmax((content + moved) * HEAD**-0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, frames, WIDTH))


def get_inputs():
    return [torch.randn(BATCH, FRAMES, WIDTH), torch.randn(1, 2 * FRAMES - 1, WIDTH)]
