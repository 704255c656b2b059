"""nnU-Net first level on 2 volumes of 128: 3 x 3 x 3 convolution of 32 channels, instance norm, leaky ReLU."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 2, 32, 128
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1, dtype=DTYPE)
        self.norm = nn.InstanceNorm3d(CHANNELS, affine=True, dtype=DTYPE)

    def forward(self, x):
        return nn.functional.leaky_relu(self.norm(self.conv(x)), 0.01)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE, dtype=DTYPE)]
