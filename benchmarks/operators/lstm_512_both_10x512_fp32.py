"""An LSTM of 512 units in both directions over 512 steps of 10 sequences."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(128, 512, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.layers(x)[0]


def get_inputs():
    return [torch.randn(10, 512, 128)]
