"""ConvNeXt-T block of the third stage, 64 images: 384 channels at 14 x 14, depthwise 7 x 7, layer scale."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 64, 384, 14


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(CHANNELS, CHANNELS, 7, padding=3, groups=CHANNELS)
        self.norm = nn.LayerNorm(CHANNELS, eps=1e-6)
        self.up, self.down = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)
        self.scale = nn.Parameter(torch.rand(CHANNELS))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(nn.functional.gelu(self.up(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
