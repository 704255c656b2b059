import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv3d(inside, outside, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(4, 16, 32, 64, 64)]


def get_init_inputs():
    return [16, 32]
