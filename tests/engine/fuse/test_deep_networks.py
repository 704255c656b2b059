"""A network is written however deep it is: no step of the engine recurses over its layers."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch
from torch import nn

from hipwright.engine import group_kernels, write
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


def test_sizes_are_computed_once_for_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, own = [], group_kernels.product
    monkeypatch.setattr(group_kernels, "product", lambda values: counts.append(1) or own(values))
    found = []
    for layers in (10, 20, 40):
        counts.clear()
        write(captured(Deep(layers), [torch.randn(3, 8)]))
        found.append(len(counts))
    few, more, many = found
    assert many - more < 2.4 * (more - few)
