"""The aspect term of complete IoU (Zheng et al. 2020): an arctangent of quotients."""

import math

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        va = torch.atan(a[:, 0] / (a[:, 1] + 1e-7))
        vb = torch.atan(b[:, 0] / (b[:, 1] + 1e-7))
        v = (4 / math.pi**2) * (va - vb).pow(2)
        return v / (v - (a * b).sum(-1).sigmoid() + 1 + 1e-7)


def get_inputs():
    return [torch.rand(64, 2), torch.rand(64, 2)]
