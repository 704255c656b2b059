"""Bias and GELU in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features).bfloat16())

    def forward(self, x):
        return torch.nn.functional.gelu(x + self.bias)


def get_inputs():
    return [torch.randn(22, 96).bfloat16()]


def get_init_inputs():
    return [96]
