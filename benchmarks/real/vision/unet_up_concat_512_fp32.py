"""U-Net decoder level, 2 images: transposed convolution 128 to 64 from 256 to 512, skip, 3 x 3 convolution, ReLU."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 2, 64, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(2 * CHANNELS, CHANNELS, 2, stride=2)
        self.conv = nn.Conv2d(2 * CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x, skip):
        return torch.relu(self.conv(torch.cat((skip, self.up(x)), dim=1)))


def get_inputs():
    return [torch.randn(BATCH, 2 * CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS, 2 * SIDE, 2 * SIDE)]


def get_input_groups():
    return [[torch.randn(1, 2 * CHANNELS, 9, 7), torch.randn(1, CHANNELS, 18, 14)]]
