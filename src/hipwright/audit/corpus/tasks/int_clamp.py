"""Differences of int32, clamped to a byte."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.clamp(x - y, 0, 255).to(torch.uint8)


def get_inputs():
    return [torch.randint(0, 600, (15, 61), dtype=torch.int32), torch.randint(0, 400, (15, 61), dtype=torch.int32)]


def get_init_inputs():
    return []
