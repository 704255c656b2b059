"""Rows divided by their 2-norm, which counts as 1e-6 where it is smaller."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1, eps=1e-6)


def get_inputs():
    return [torch.randn(40, 96)]


def get_init_inputs():
    return []
