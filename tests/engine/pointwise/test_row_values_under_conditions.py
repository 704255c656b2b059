"""Values of a whole row that are loaded under a condition, and read in its other branch or under another one too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import space
from tests.engine.harness import Op, captured, check

PART = 5


def normalised(x: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x - mean[:, None, None]) * weight[:, None, None]


def both_branches(x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = normalised(x, mean, weight)
    return torch.cat([n[:, :PART] + y[:, :PART], n[:, PART:]], 1)


def three_pieces(x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = normalised(x, mean, weight)
    return torch.cat([n[:, :2] + y[:, :2], n[:, 2:PART], n[:, PART:] * y[:, PART:]], 1)


def other_branch(x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = normalised(x, mean, weight)
    return torch.cat([y[:, :PART], n[:, PART:]], 1)


def two_conditions(x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = normalised(x, mean, weight)
    return torch.cat([n[:, :2], y[:, 2:]], 1) + torch.cat([y[:, :PART], n[:, PART:]], 1)


def reduced(x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.softmax(both_branches(x, y, mean, weight), -1)


def inputs(batch: int, height: int, width: int) -> list[torch.Tensor]:
    shape = (batch, 9, height, width)
    return [torch.randn(shape), torch.randn(shape), torch.randn(9), torch.randn(9)]


@pytest.mark.parametrize("function", [both_branches, three_pieces, other_branch, two_conditions, reduced])
def test_each_branch_reads_the_values_of_its_row(function: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    given = inputs(2, 12, 12)
    offered = space(captured(Op(function), given))
    choices = {key: "rows" for key, choice in offered.items() if "rows" in choice.options}
    assert choices or function is reduced
    check(Op(function), given, choices=choices, other=inputs(3, 1, 3))
