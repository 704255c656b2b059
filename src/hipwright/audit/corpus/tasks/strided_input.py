"""Rows of a transposed tensor, scaled: the input is not contiguous."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 3.0).sum(dim=1)


def get_inputs():
    return [torch.randn(90, 28).t()]


def get_init_inputs():
    return []
