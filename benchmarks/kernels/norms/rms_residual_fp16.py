import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width).half())

    def forward(self, x, residual):
        total = (x + residual).float()
        scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-5)
        return (total * scale).half() * self.weight, total.half()


def get_inputs():
    return [torch.randn(32768, 5120).half(), torch.randn(32768, 5120).half()]


def get_init_inputs():
    return [5120]
