"""Sum over the last dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(33, 300)]


def get_init_inputs():
    return []
