import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.cell = nn.LSTMCell(inside, hidden)
        self.hidden = hidden

    def forward(self, x):
        h = x.new_zeros(x.shape[1], self.hidden)
        c = x.new_zeros(x.shape[1], self.hidden)
        for step in range(16):
            h, c = self.cell(x[step], (h, c))
        return h


def get_inputs():
    return [torch.randn(16, 32, 128)]


def get_init_inputs():
    return [128, 128]
