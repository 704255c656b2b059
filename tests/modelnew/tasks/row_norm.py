"""The root of the mean square of each row."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return torch.sqrt((x * x).mean(dim=1) + self.eps)


def get_inputs():
    return [torch.randn(9, 301)]


def get_init_inputs():
    return []
