"""Stable Diffusion 1.5 downsampling convolution of stride 2, 16 latents: 640 channels from 32 x 32 to 16 x 16."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 16, 640, 32
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1, dtype=DTYPE)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
