"""A forward that writes to a parameter's data, keeps a gradient, counts in a buffer, and reads all of them."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("calls", torch.zeros(()))
        self.extra = 0

    def forward(self, x):
        self.weight.data.mul_(2)
        self.calls += 1
        self.extra += 1
        return x * self.weight + self.calls + self.extra


def get_inputs():
    return [torch.rand(3, 4)]
