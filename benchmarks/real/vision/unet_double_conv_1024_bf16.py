"""U-Net's first level for segmentation, in evaluation, 2 images of 1024: two 3 x 3 convolutions of 64 channels."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 2, 64, 1024
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)])
        self.to(DTYPE).eval()

    def forward(self, x):
        x = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
