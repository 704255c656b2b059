"""One step of conjugate gradients for Poisson's equation on 4096 x 4096 points with zero borders."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 4096


class Model(nn.Module):
    def forward(self, x, residual, direction, square):
        p = F.pad(direction, (1, 1, 1, 1))
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        image = 4.0 * direction - around
        step = square / (direction * image).sum()
        residual = residual - step * image
        after = residual.square().sum()
        return x + step * direction, residual, residual + after / square * direction, after


def get_inputs():
    x, residual = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    return [x, residual, residual.clone(), residual.square().sum()]
