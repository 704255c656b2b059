"""MobileNetV2 inverted residual in evaluation, 64 images: 32 channels at 28 x 28, expansion 6, ReLU6."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 64, 32, 28
HIDDEN = 6 * CHANNELS
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(CHANNELS, HIDDEN, 1, bias=False)
        self.depthwise = nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1, groups=HIDDEN, bias=False)
        self.project = nn.Conv2d(HIDDEN, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(HIDDEN), nn.BatchNorm2d(HIDDEN), nn.BatchNorm2d(CHANNELS)])
        self.to(DTYPE).eval()

    def forward(self, x):
        y = nn.functional.relu6(self.norms[0](self.expand(x)))
        y = nn.functional.relu6(self.norms[1](self.depthwise(y)))
        return x + self.norms[2](self.project(y))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
