"""ECAPA-TDNN attentive statistics pooling, 32 x 300 frames: 1536 channels, attention over 128."""

import torch
from torch import nn

BATCH, CHANNELS, FRAMES, INNER = 32, 1536, 300, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(3 * CHANNELS, INNER, 1), nn.Conv1d(INNER, CHANNELS, 1)

    def forward(self, x):
        mean = x.mean(dim=2, keepdim=True)
        spread = (x - mean).square().mean(dim=2, keepdim=True).clamp(min=1e-12).sqrt()
        wide = torch.cat((x, mean.expand_as(x), spread.expand_as(x)), dim=1)
        weights = torch.softmax(self.second(torch.tanh(self.first(wide))), dim=2)
        mean = (weights * x).sum(dim=2)
        spread = (weights * (x - mean[:, :, None]).square()).sum(dim=2).clamp(min=1e-12).sqrt()
        return torch.cat((mean, spread), dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES)]
