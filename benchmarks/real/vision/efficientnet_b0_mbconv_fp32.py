"""EfficientNet-B0 MBConv6 5 x 5 with squeeze and excitation in evaluation, 32 images: 40 channels at 28 x 28."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 32, 40, 28
HIDDEN = 6 * CHANNELS


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(CHANNELS, HIDDEN, 1, bias=False)
        self.depthwise = nn.Conv2d(HIDDEN, HIDDEN, 5, padding=2, groups=HIDDEN, bias=False)
        self.squeeze, self.excite = nn.Conv2d(HIDDEN, CHANNELS // 4, 1), nn.Conv2d(CHANNELS // 4, HIDDEN, 1)
        self.project = nn.Conv2d(HIDDEN, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(HIDDEN), nn.BatchNorm2d(HIDDEN), nn.BatchNorm2d(CHANNELS)])
        self.eval()

    def forward(self, x):
        y = nn.functional.silu(self.norms[0](self.expand(x)))
        y = nn.functional.silu(self.norms[1](self.depthwise(y)))
        gate = self.excite(nn.functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        return x + self.norms[2](self.project(y * torch.sigmoid(gate)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
