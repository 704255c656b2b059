"""The form of a golden program, and modules and inputs that several of them use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Good(NamedTuple):
    name: str
    text: str
    inputs: Callable[[], tuple[Any, ...]]
    expected: Callable[..., Any]
    model: Callable[[], nn.Module] | None = None
    knobs: dict[str, int] | None = None


def x44() -> tuple[Any, ...]:
    return (torch.randn(4, 6),)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)])
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
        self.register_buffer("mean", torch.randn(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.sizes = [6, 3]
        self.eps = 1e-5
        self.name = "stack"


def stack_expected(model: Stack, x: torch.Tensor) -> torch.Tensor:
    for layer in model.layers:
        x = F.relu(F.linear(x, layer.weight, layer.bias))
    return x
