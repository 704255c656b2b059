"""A network is written however deep it is: no step of the engine recurses over its layers."""

from __future__ import annotations

import inspect
import sys

import torch
from torch import nn

from hipwright.engine import write
from tests.engine.harness import captured


class Deep(nn.Module):
    """Residual layers with a library call, a reduction and pointwise work each."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for linear in self.maps:
            x = x + torch.sigmoid(linear(torch.relu(x)).mean(-1, keepdim=True)) * x
        return x


def test_a_deep_network_needs_no_deep_stack() -> None:
    graph = captured(Deep(80), [torch.randn(3, 8)])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 140)
    try:
        assert len(write(graph).text) > 80 * 40
    finally:
        sys.setrecursionlimit(limit)
