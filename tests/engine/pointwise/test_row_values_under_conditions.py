"""Values of a whole row that are loaded under a condition, and read in its other branch or under another one too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.harness import Op, check

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


@pytest.mark.parametrize("function", [both_branches, three_pieces, other_branch, two_conditions, reduced])
@pytest.mark.parametrize("size", [(12, 12), (1, 3)], ids=str)
def test_each_branch_reads_the_values_of_its_row(function: Callable[..., torch.Tensor], size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 9, *size), torch.randn(2, 9, *size), torch.randn(9), torch.randn(9)]
    check(Op(function), inputs)
