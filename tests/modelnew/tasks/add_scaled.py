"""x + alpha * y."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, alpha=2.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y):
        return x + self.alpha * y


def get_inputs():
    return [torch.randn(3, 130), torch.randn(3, 130)]


def get_init_inputs():
    return []
