import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [
        torch.randn(4, 16, 2048, 64).bfloat16(),
        torch.randn(4, 16, 2048, 64).bfloat16(),
        torch.randn(4, 16, 2048, 64).bfloat16(),
    ]
