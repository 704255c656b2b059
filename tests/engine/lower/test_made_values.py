"""Rotated tensors of any size and identity matrices are indices of the kernels that read them, not calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.engine.harness import Op, check, kernels_in


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("shifts", [(-3, -3), (3, 2), (7, -9), (-1, 1)])
def test_a_roll_by_more_than_the_size_may_be(shifts: tuple[int, int]) -> None:
    """The program is for every size, so also for sizes that the shift exceeds."""
    text = check(Op(lambda x: x.roll(shifts, (1, 2)) * 2 + x), [draw(2, 12, 11, 4)], other=[draw(1, 2, 1, 4)])
    assert kernels_in(text) == 1


def test_a_window_of_a_rolled_image_is_one_copy() -> None:
    """As in a shifted window attention: the roll is in the copy's index."""

    def windows(x: torch.Tensor) -> torch.Tensor:
        x = x.roll((-2, -2), (1, 2)).view(x.shape[0], 2, 4, 2, 4, 8)
        return x.transpose(2, 3).reshape(-1, 16, 8).contiguous()

    assert kernels_in(check(Op(windows), [draw(3, 8, 8, 8)], other=[draw(1, 8, 8, 8)])) == 1


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x + 0.1 * torch.eye(x.shape[0]),
        lambda x: torch.exp(-x[:, :3]) - torch.eye(x.shape[0], 3),
        lambda x: (torch.eye(x.shape[0], dtype=torch.bool) | (x > 0)).float(),
        lambda x: x * torch.eye(x.shape[0], dtype=torch.float16),
    ],
    ids=["square", "rectangular", "bool", "half"],
)
def test_an_identity_matrix_is_a_comparison(made: Callable[..., Any]) -> None:
    text = check(Op(made), [draw(9, 9)], other=[draw(5, 5)])
    assert kernels_in(text) == 1 and "torch.eye" not in text
