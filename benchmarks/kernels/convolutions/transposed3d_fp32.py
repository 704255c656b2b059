import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.ConvTranspose3d(inside, outside, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(4, 32, 16, 32, 32)]


def get_init_inputs():
    return [32, 16]
