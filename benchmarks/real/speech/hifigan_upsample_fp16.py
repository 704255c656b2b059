"""HiFi-GAN V1 first upsampling, 16 x 256 frames: leaky ReLU, transposed convolution 512 to 256, kernel 16, stride 8."""

import torch
from torch import nn

BATCH, CHANNELS, FRAMES, KERNEL, STRIDE = 16, 512, 256, 16, 8
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        half = CHANNELS // 2
        self.up = nn.ConvTranspose1d(CHANNELS, half, KERNEL, STRIDE, padding=(KERNEL - STRIDE) // 2, dtype=DTYPE)

    def forward(self, x):
        return self.up(nn.functional.leaky_relu(x, 0.1))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, dtype=DTYPE)]
