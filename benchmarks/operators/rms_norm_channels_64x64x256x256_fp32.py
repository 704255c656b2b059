"""A root mean square norm over the channels of images."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(64, 64, 256, 256)]
