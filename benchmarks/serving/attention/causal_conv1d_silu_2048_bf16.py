"""Causal depthwise convolution of 4 taps with bias and SiLU, 4 sequences of 2048 tokens, 2048 channels."""

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, TAPS = 2048, 4
DTYPE = torch.bfloat16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, CHANNELS, TAPS, groups=CHANNELS, padding=TAPS - 1, dtype=DTYPE)

    def forward(self, x):
        return F.silu(self.conv(x)[..., : x.shape[-1]])


def get_inputs():
    return [torch.randn(4, CHANNELS, 2048, dtype=DTYPE)]
