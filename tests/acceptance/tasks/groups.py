"""Three sets of inputs that differ in shape and in a Python number."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, factor: float):
        return torch.tanh(x).mean(1) * factor


def get_inputs():
    return [torch.randn(32, 100), 2.5]


def get_input_groups():
    return [[torch.randn(7, 13), 1.5], [torch.randn(1, 100), 2.5]]
