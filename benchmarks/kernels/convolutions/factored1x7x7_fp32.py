import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv3d(inside, outside, (1, 7, 7), padding=(0, 3, 3))

    def forward(self, x):
        return nn.functional.leaky_relu(self.conv(x), 0.1)


def get_inputs():
    return [torch.randn(4, 3, 16, 112, 112)]


def get_init_inputs():
    return [3, 32]
