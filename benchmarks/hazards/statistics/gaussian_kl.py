"""Divergence of diagonal Gaussians: a sum of terms that cancel."""

import torch


class Model(torch.nn.Module):
    def forward(self, m, s, n, t):
        return (0.5 * ((t - s) + (s.exp() + (m - n).pow(2)) / t.exp() - 1)).sum(-1)


def get_inputs():
    return [torch.randn(33, 8), torch.randn(33, 8), torch.randn(33, 8), torch.randn(33, 8)]
