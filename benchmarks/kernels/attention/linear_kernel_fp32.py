import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k = nn.functional.elu(q) + 1.0, nn.functional.elu(k) + 1.0
        state = k.transpose(-1, -2) @ v
        scale = q @ k.sum(dim=-2, keepdim=True).transpose(-1, -2)
        return (q @ state) / (scale + 1e-6)


def get_inputs():
    return [torch.randn(8, 16, 4096, 64), torch.randn(8, 16, 4096, 64), torch.randn(8, 16, 4096, 64)]
