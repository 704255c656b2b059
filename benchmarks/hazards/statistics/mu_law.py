"""Mu-law companding to 256 levels: a cast of a value near a border."""

import math

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = x.clamp(-1, 1)
        y = y.sign() * torch.log1p(255 * y.abs()) / math.log1p(255)
        return ((y + 1) / 2 * 255 + 0.5).to(torch.int64)


def get_inputs():
    return [torch.randn(33, 40)]
