"""An LSTM of 256 units over 256 steps of 64 sequences."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(128, 256, batch_first=True)

    def forward(self, x):
        return self.layers(x)[0]


def get_inputs():
    return [torch.randn(64, 256, 128)]
