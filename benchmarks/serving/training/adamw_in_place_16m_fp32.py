"""One AdamW step of 16777216 parameters with decay 0.1; parameters and both moments are written in place."""

import torch
from torch import nn

COUNT, RATE, FIRST, SECOND, EPS, DECAY, STEP = 1 << 24, 3e-4, 0.9, 0.95, 1e-8, 0.1, 100


class Model(nn.Module):
    def forward(self, weight, gradient, mean, square):
        mean.lerp_(gradient, 1 - FIRST)
        square.mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
        size = (square / (1 - SECOND**STEP)).sqrt().add_(EPS)
        weight.mul_(1 - RATE * DECAY).addcdiv_(mean, size, value=-RATE / (1 - FIRST**STEP))


def get_inputs():
    return [torch.randn(COUNT), torch.randn(COUNT), torch.randn(COUNT) * 0.1, torch.rand(COUNT)]
