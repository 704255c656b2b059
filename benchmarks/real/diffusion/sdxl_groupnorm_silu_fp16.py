"""SDXL U-Net group norm of 32 groups and SiLU, 8 latents: 320 channels at 128 x 128."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE, GROUPS = 8, 320, 128, 32
DTYPE = torch.float16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, CHANNELS, eps=1e-5, dtype=DTYPE)

    def forward(self, x):
        return nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, dtype=DTYPE)]
