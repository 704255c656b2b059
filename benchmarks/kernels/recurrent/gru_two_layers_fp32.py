import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.gru = nn.GRU(inside, hidden, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


def get_inputs():
    return [torch.randn(32, 64, 128)]


def get_init_inputs():
    return [128, 128]
