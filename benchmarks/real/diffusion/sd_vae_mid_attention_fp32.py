"""Stable Diffusion VAE middle attention, one image of 512: 512 channels at 64 x 64, one head, group norm, residual."""

import torch
from torch import nn

BATCH, CHANNELS, SIDE = 1, 512, 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(32, CHANNELS, eps=1e-6)
        self.q, self.k = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.v, self.out = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x):
        y = self.norm(x).flatten(2).transpose(1, 2)
        scores = self.q(y) @ self.k(y).transpose(1, 2) * CHANNELS**-0.5
        y = self.out(torch.softmax(scores, dim=-1) @ self.v(y))
        return x + y.transpose(1, 2).reshape(x.shape)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]
