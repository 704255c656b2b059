"""Sums of large integers per row, in int64."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randint(0, 2**31 - 1, (20, 77), dtype=torch.int32)]


def get_init_inputs():
    return []
