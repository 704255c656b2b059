"""Exponential moving average (0.9999) of a ControlNet of 361 million parameters, as one tensor."""

import torch

PARAMETERS = 361279120
DECAY = 0.9999


class Model(torch.nn.Module):
    def forward(self, average, parameter):
        return torch.lerp(average, parameter, 1.0 - DECAY)


def get_inputs():
    return [torch.randn(PARAMETERS), torch.randn(PARAMETERS)]
