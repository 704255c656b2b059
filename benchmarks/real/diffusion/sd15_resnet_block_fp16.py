"""Stable Diffusion 1.5 U-Net residual block with time embedding, 8 latents: 320 channels at 64 x 64, embedding 1280."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE, EMBEDDING = 8, 320, 64, 1280
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, CHANNELS), nn.GroupNorm(32, CHANNELS)])
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.time = nn.Linear(EMBEDDING, CHANNELS)
        self.to(DTYPE)

    def forward(self, x, embedding):
        y = self.first(nn.functional.silu(self.norms[0](x)))
        y = y + self.time(nn.functional.silu(embedding))[:, :, None, None]
        return x + self.second(nn.functional.silu(self.norms[1](y)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE), torch.randn(BATCH, EMBEDDING, dtype=DTYPE)]
