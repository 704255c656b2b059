"""A running average, kept in a buffer, is subtracted."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("average", torch.zeros(features))

    def forward(self, x):
        self.average.mul_(0.9).add_(x.mean(dim=0) * 0.1)
        return x - self.average


def get_inputs():
    return [torch.randn(32, 26)]


def get_init_inputs():
    return [26]
