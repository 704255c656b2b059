"""Chamfer distance of point sets: least distances."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        d = torch.cdist(a, b)
        return d.amin(-1).mean(-1) + d.amin(-2).mean(-1)


def get_inputs():
    return [torch.randn(3, 40, 3), torch.randn(3, 33, 3)]
