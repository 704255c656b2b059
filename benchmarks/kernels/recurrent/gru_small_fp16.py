import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.gru = nn.GRU(inside, hidden, dtype=torch.float16)

    def forward(self, x):
        return self.gru(x)[1]


def get_inputs():
    return [torch.randn(32, 8, 64).half()]


def get_init_inputs():
    return [64, 64]
