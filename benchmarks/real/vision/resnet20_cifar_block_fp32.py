"""ResNet-20 basic block for CIFAR-10 in evaluation, 32 images: 16 channels at 32 x 32."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 32, 16, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)])
        self.eval()

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
