import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, grad, x, mean, rstd):
        return torch.ops.aten.native_layer_norm_backward(
            grad, x, [x.shape[-1]], mean, rstd, self.weight, self.bias, [True, True, True]
        )


def get_inputs():
    return [torch.randn(32768, 2048), torch.randn(32768, 2048), torch.randn(32768, 1) * 0.1, torch.rand(32768, 1) + 0.5]


def get_init_inputs():
    return [2048]
