import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.register_buffer("mask", torch.ones(width), persistent=False)

    def forward(self, x):
        return self.norm(x) * self.mask


class Model(nn.Module):
    """Train mode batch norm, tied weights, a plain tensor, a module list."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.table = torch.arange(8.0)
        self.turned = self.first.weight.t()

    def forward(self, x):
        x = self.second(self.first(x)) + self.table + x @ self.turned
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(6, 8)]
