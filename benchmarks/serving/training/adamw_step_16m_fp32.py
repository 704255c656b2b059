"""One AdamW step of 16777216 parameters with decay 0.1; returns the new parameters and both moments."""

import torch
from torch import nn

COUNT, RATE, FIRST, SECOND, EPS, DECAY, STEP = 1 << 24, 3e-4, 0.9, 0.95, 1e-8, 0.1, 100


class Model(nn.Module):
    def forward(self, weight, gradient, mean, square):
        mean = FIRST * mean + (1 - FIRST) * gradient
        square = SECOND * square + (1 - SECOND) * gradient * gradient
        size = (square / (1 - SECOND**STEP)).sqrt() + EPS
        weight = weight * (1 - RATE * DECAY) - RATE / (1 - FIRST**STEP) * mean / size
        return weight, mean, square


def get_inputs():
    return [torch.randn(COUNT), torch.randn(COUNT), torch.randn(COUNT) * 0.1, torch.rand(COUNT)]
