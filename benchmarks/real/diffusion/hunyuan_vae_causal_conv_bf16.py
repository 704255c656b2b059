"""HunyuanVideo VAE causal 3-D convolution of 3 x 3 x 3: 128 channels, 9 frames of 256 x 256, edges repeated."""

import torch
from torch import nn

CHANNELS, FRAMES, SIDE = 128, 9, 256
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, dtype=DTYPE)

    def forward(self, x):
        x = nn.functional.pad(x, (1, 1, 1, 1, 2, 0), mode="replicate")
        return nn.functional.silu(self.conv(x))


def get_inputs():
    return [torch.randn(1, CHANNELS, FRAMES, SIDE, SIDE, dtype=DTYPE)]
