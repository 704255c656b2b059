"""A copy of the input beside its row sums."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.clone(), x.sum(dim=1)


def get_inputs():
    return [torch.randn(20, 48)]


def get_init_inputs():
    return []
