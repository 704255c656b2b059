"""The rotation of query vectors by position (pairs of neighbours), 16384 tokens of 16 heads of 64."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        pairs = x.float().unflatten(-1, (32, 2))
        even, odd = pairs[..., 0], pairs[..., 1]
        cos, sin = cos[:, None, :], sin[:, None, :]
        turned = torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1)
        return turned.flatten(-2).to(x.dtype)


def get_inputs() -> list[torch.Tensor]:
    angle = torch.randn(16384, 32)
    return [torch.randn(16384, 16, 64, dtype=torch.bfloat16), angle.cos(), angle.sin()]


def get_init_inputs() -> list[object]:
    return []
