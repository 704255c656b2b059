"""How often each number below 24 occurs."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        return F.one_hot(x, self.bins).sum(dim=0)


def get_inputs():
    return [torch.randint(0, 24, (3000,))]


def get_init_inputs():
    return [24]
