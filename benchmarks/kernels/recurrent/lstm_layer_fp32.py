import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.lstm = nn.LSTM(inside, hidden)

    def forward(self, x):
        out, (hidden, cell) = self.lstm(x)
        return out, hidden, cell


def get_inputs():
    return [torch.randn(256, 64, 128)]


def get_init_inputs():
    return [128, 128]
