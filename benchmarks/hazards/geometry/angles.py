"""Angles between nearly parallel vectors: the arccosine of a cosine similarity."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.acos(torch.nn.functional.cosine_similarity(x, x + 0.01 * x.roll(1, -1), dim=-1))


def get_inputs():
    return [torch.randn(40, 31)]
