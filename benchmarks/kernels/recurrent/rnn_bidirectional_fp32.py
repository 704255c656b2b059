import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        self.rnn = nn.RNN(inside, hidden, bidirectional=True)

    def forward(self, x):
        return self.rnn(x)[0]


def get_inputs():
    return [torch.randn(64, 16, 64)]


def get_init_inputs():
    return [64, 128]
