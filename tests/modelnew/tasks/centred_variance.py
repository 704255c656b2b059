"""Columns centred and scaled, in two passes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(dim=0)
        return centred / torch.sqrt((centred * centred).mean(dim=0) + self.eps)


def get_inputs():
    return [torch.randn(40, 33)]


def get_init_inputs():
    return [1e-3]
