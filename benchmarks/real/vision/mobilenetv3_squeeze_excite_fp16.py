"""MobileNetV3-large squeeze and excitation with hard sigmoid, then hard swish, 16 images: 72 channels at 28 x 28."""

import torch
from torch import nn

BATCH, CHANNELS, SQUEEZED, SIDE = 16, 72, 24, 28
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.squeeze = nn.Conv2d(CHANNELS, SQUEEZED, 1, dtype=DTYPE)
        self.excite = nn.Conv2d(SQUEEZED, CHANNELS, 1, dtype=DTYPE)

    def forward(self, x):
        gate = self.excite(torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(x, 1))))
        return nn.functional.hardswish(x * nn.functional.hardsigmoid(gate))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
