"""RMSNorm in bfloat16, as in a language model's block: 4096 tokens of width 4096."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).bfloat16())

    def forward(self, x):
        mean = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(mean + 1e-6)).bfloat16() * self.weight


def get_inputs():
    return [torch.randn(4096, 4096).bfloat16()]


def get_init_inputs():
    return [4096]
