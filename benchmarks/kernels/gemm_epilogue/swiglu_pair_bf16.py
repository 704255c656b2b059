import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, gate, up):
        return nn.functional.silu(x @ gate) * (x @ up)


def get_inputs():
    return [
        torch.randn(4096, 2048).bfloat16(),
        torch.randn(2048, 5632).bfloat16() * 0.02,
        torch.randn(2048, 5632).bfloat16() * 0.02,
    ]
