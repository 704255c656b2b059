"""Distances in the Poincare ball: an inverse hyperbolic cosine near 1."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        xx, yy = x.pow(2).sum(-1), y.pow(2).sum(-1)
        d = (x - y).pow(2).sum(-1)
        return torch.acosh(1 + 2 * d / ((1 - xx).clamp(min=1e-5) * (1 - yy).clamp(min=1e-5)))


def get_inputs():
    return [torch.rand(64, 5) * 0.4, torch.rand(64, 5) * 0.4]
