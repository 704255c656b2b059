import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [
        torch.randn(32, 16, 1, 128).bfloat16(),
        torch.randn(32, 16, 8192, 128).bfloat16(),
        torch.randn(32, 16, 8192, 128).bfloat16(),
    ]
