"""Whisper's log mel spectrum of 16 x 30 seconds by products: frames of 400 each 160 samples, 201 bins, 80 bands."""

import math

import torch
from torch import nn

BATCH, SAMPLES, LENGTH, HOP, BANDS = 16, 480000, 400, 160, 80
BINS = LENGTH // 2 + 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        time, bin_ = torch.arange(LENGTH).float(), torch.arange(BINS).float()
        angles = 2.0 * math.pi / LENGTH * time[:, None] * bin_
        window = (0.5 - 0.5 * torch.cos(2.0 * math.pi / LENGTH * time))[:, None]
        self.register_buffer("waves", torch.cat((angles.cos() * window, angles.sin() * window), dim=1))
        self.register_buffer("bands", torch.rand(BINS, BANDS) / BINS)

    def forward(self, x):
        frames = x.unfold(1, LENGTH, HOP) @ self.waves
        power = frames[..., :BINS].square() + frames[..., BINS:].square()
        mel = torch.log10((power @ self.bands).clamp(min=1e-10))
        mel = torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8.0)
        return ((mel + 4.0) / 4.0).transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH, SAMPLES)]
