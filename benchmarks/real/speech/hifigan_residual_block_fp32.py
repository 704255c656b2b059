"""HiFi-GAN V1 residual block, 16 x 8192 samples: 128 channels, kernel 11, dilations 1, 3 and 5, leaky ReLU 0.1."""

import torch
from torch import nn

BATCH, CHANNELS, SAMPLES, KERNEL, DILATIONS = 16, 128, 8192, 11, (1, 3, 5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        half = KERNEL // 2
        self.dilated = nn.ModuleList(
            [nn.Conv1d(CHANNELS, CHANNELS, KERNEL, dilation=d, padding=d * half) for d in DILATIONS]
        )
        self.plain = nn.ModuleList([nn.Conv1d(CHANNELS, CHANNELS, KERNEL, padding=half) for _ in DILATIONS])

    def forward(self, x):
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            y = dilated(nn.functional.leaky_relu(x, 0.1))
            x = x + plain(nn.functional.leaky_relu(y, 0.1))
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SAMPLES)]
