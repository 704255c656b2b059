"""Modules without sizes until their first call; the counter and the statistics are those of no call."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.LazyLinear(6), torch.nn.LazyBatchNorm1d(), torch.nn.Dropout(0.0))
        self.net[2].eval()

    def forward(self, x):
        return self.net(x)


def get_input_groups():
    return [[torch.randn(5, 3) + 2]]
