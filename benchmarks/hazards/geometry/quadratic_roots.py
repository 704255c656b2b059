"""Roots of quadratics: a discriminant that may vanish."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b, c):
        d = b * b - 4 * a * c
        root = d.clamp(min=0).sqrt()
        return torch.where(d >= 0, (-b + root) / (2 * a), torch.zeros_like(d))


def get_inputs():
    return [torch.randn(65) + 3, torch.randn(65), torch.randn(65)]
