"""Largest value of each row and where it stands."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        values, indices = torch.max(x, dim=1)
        return values, indices


def get_inputs():
    return [torch.randn(30, 70)]


def get_init_inputs():
    return []
