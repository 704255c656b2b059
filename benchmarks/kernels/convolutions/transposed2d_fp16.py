import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.ConvTranspose2d(inside, outside, 4, stride=2, padding=1, dtype=torch.float16)

    def forward(self, x):
        return torch.tanh(self.conv(x))


def get_inputs():
    return [torch.randn(16, 128, 64, 64).half()]


def get_init_inputs():
    return [128, 64]
