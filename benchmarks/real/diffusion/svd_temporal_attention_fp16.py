"""Stable Video Diffusion temporal attention, 2 videos of 14 frames: 320 channels at 72 x 128, 5 heads of 64."""

import torch
from torch import nn

BATCH, FRAMES, HEADS, HEAD, HEIGHT, WIDE = 2, 14, 5, 64, 72, 128
WIDTH = HEADS * HEAD
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.to(DTYPE)

    def forward(self, x):
        y = x.view(-1, FRAMES, WIDTH, x.shape[2] * x.shape[3]).permute(0, 3, 1, 2).reshape(-1, FRAMES, WIDTH)
        q, k, v = self.qkv(self.norm(y)).view(-1, FRAMES, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        scores = (q * HEAD**-0.5) @ k.transpose(-1, -2)
        mixed = torch.softmax(scores, dim=-1) @ v
        y = y + self.out(mixed.transpose(1, 2).reshape(-1, FRAMES, WIDTH))
        return y.view(-1, x.shape[2] * x.shape[3], FRAMES, WIDTH).permute(0, 2, 3, 1).reshape(x.shape)


def get_inputs():
    return [torch.randn(BATCH * FRAMES, WIDTH, HEIGHT, WIDE, dtype=DTYPE)]
