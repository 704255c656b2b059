import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(16, 320, 128, 128)]


def get_init_inputs():
    return [32, 320]
