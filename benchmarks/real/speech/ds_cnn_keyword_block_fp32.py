"""DS-CNN keyword spotting block in evaluation, 32 x 25 x 5: 64 channels, depthwise 3 x 3, pointwise, batch norms."""

import torch
from torch import nn

BATCH, CHANNELS, FRAMES, BANDS = 32, 64, 25, 5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)
        self.pointwise = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)])
        self.eval()

    def forward(self, x):
        x = torch.relu(self.norms[0](self.depthwise(x)))
        return torch.relu(self.norms[1](self.pointwise(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, BANDS)]
