"""ControlNet zero convolution 1 x 1 added to the U-Net's skip with scale 0.8, 8 latents: 320 channels at 64 x 64."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 8, 320, 64
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 1, dtype=DTYPE)

    def forward(self, skip, control):
        return skip + 0.8 * self.conv(control)


def get_inputs():
    return [
        torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE),
        torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE),
    ]
