import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.pixel_shuffle(x, 4)


def get_inputs():
    return [torch.randn(32, 256, 128, 128).half()]
