"""ResNet-50 bottleneck of the first stage in evaluation, 32 images of 224: 256 channels at 56 x 56, inner 64."""

import torch
from torch import nn

BATCH, CHANNELS, INNER, SIDE = 32, 256, 64, 56


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce = nn.Conv2d(CHANNELS, INNER, 1, bias=False)
        self.conv = nn.Conv2d(INNER, INNER, 3, padding=1, bias=False)
        self.expand = nn.Conv2d(INNER, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(INNER), nn.BatchNorm2d(INNER), nn.BatchNorm2d(CHANNELS)])
        self.eval()

    def forward(self, x):
        y = torch.relu(self.norms[0](self.reduce(x)))
        y = torch.relu(self.norms[1](self.conv(y)))
        return torch.relu(self.norms[2](self.expand(y)) + x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
