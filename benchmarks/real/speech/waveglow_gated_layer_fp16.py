"""WaveGlow gated layer, 8 x 2000 groups: 512 channels, kernel 3, dilation 16, conditioned, residual and skip."""

import torch
from torch import nn

BATCH, CHANNELS, STEPS, DILATION = 8, 512, 2000, 16
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, 2 * CHANNELS, 3, dilation=DILATION, padding=DILATION, dtype=DTYPE)
        self.mix = nn.Conv1d(CHANNELS, 2 * CHANNELS, 1, dtype=DTYPE)

    def forward(self, x, condition, skip):
        filtered, gate = (self.conv(x) + condition).chunk(2, dim=1)
        residual, more = self.mix(torch.tanh(filtered) * torch.sigmoid(gate)).chunk(2, dim=1)
        return x + residual, skip + more


def get_inputs():
    return [
        torch.randn(BATCH, CHANNELS, STEPS, dtype=DTYPE),
        torch.randn(BATCH, 2 * CHANNELS, STEPS, dtype=DTYPE),
        torch.randn(BATCH, CHANNELS, STEPS, dtype=DTYPE),
    ]
