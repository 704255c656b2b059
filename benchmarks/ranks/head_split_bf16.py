"""Heads of rows made contiguous."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (16, 128)).transpose(1, 2).contiguous() * 0.125


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 2048, 2048, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
