"""One Jacobi step of Poisson's equation on 4096 x 4096 points with zero borders, and the sum of squared changes."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 4096


class Model(nn.Module):
    def forward(self, u, source):
        p = F.pad(u, (1, 1, 1, 1))
        after = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + source) * 0.25
        return after, (after - u).square().sum()


def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]
