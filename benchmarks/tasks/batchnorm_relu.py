"""BatchNorm in evaluation and ReLU on 32 images of 128 channels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(32, 128, 56, 56)]


def get_init_inputs():
    return [128]
