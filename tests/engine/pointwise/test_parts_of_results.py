"""Operands that only a part of the result reads: a vector that reaches beyond them must not be loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import space
from tests.engine.harness import Op, captured, check

SIZES = [(2, 1), (31, 1), (33, 1), (30, 2), (1023, 2), (257, 3)]


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y], 0)


def squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.tanh(x), y * y, y], 0)


def padded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, 3)) + y[0]


@pytest.mark.parametrize("function", [joined, squared, padded])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_vectors_end_with_the_operand(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    inputs = [torch.randn(5, dtype=dtype), torch.randn(3, dtype=dtype)]
    offered = space(captured(Op(function), inputs))
    choices = {key: "vector" for key, choice in offered.items() if "vector" in choice.options} | {"VEC": 4, "BLOCK": 64}
    for n, m in SIZES:
        check(Op(function), inputs, choices=choices, other=[torch.randn(n, dtype=dtype), torch.randn(3, dtype=dtype)])
        check(Op(function), [torch.randn(n, dtype=dtype), torch.randn(m, dtype=dtype)], choices=choices)
