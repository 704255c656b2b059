"""Casts to narrow integers wrap where they are read and not stored, and so do numbers and scalars beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine.lower.table import held
from tests.engine.harness import Op, check

CASTS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.to(torch.uint8) > 5,
    lambda x: x.to(torch.uint8).to(torch.int32),
    lambda x: x.to(torch.uint8).float(),
    lambda x: x.to(torch.int8).sum(1),
    lambda x: x.to(torch.uint8).cumsum(1),
    lambda x: x.to(torch.uint8).max(1)[0],
    lambda x: x.to(torch.int16).long(),
    lambda x: torch.cat([x.to(torch.uint8), x.to(torch.int8)], 1),
    lambda x: torch.full_like(x, 300).to(torch.uint8).long() + x,
    lambda x: torch.sum(x.to(torch.uint8), 1, dtype=torch.uint8).long(),
    lambda x: torch.prod(x.to(torch.uint8) | 1, 1, dtype=torch.int8).long(),
]
BESIDE: list[Callable[[torch.Tensor], Any]] = [
    lambda x: (x > -1, x != 300, x == 2**32 + 44, x < torch.tensor(-1)),
    lambda x: (x % -3, torch.fmod(x, -3), x // -3, (-7) % (x | 1), 5 & x, 6 | x, -1 ^ x),
    lambda x: (torch.div(x, -3, rounding_mode="trunc"), torch.maximum(x, torch.tensor(-1))),
    lambda x: x.clamp(min=-1).long(),
    lambda x: torch.where(x > 3, x, -1).long() + 1,
    lambda x: x.masked_fill(x > 3, -1).long() + 1,
    lambda x: torch.full_like(x, -1).long() + 1,
    lambda x: (300 - x).long() + 1,
    lambda x: (x << 256, x.to(torch.int16) == x, x.half() == 0.1),
]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64], ids=str)
def test_casts_wrap(dtype: torch.dtype) -> None:
    x = torch.randint(-300, 301, (5, 7), generator=torch.Generator().manual_seed(3)).to(dtype)
    check(Op(lambda x: [f(x) for f in CASTS]), [x])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
def test_numbers_beside_them_wrap(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 44, -1, -128, 127], [3, 4, 253, 255, 7, 9]]).to(dtype)
    check(Op(lambda x: [f(x) for f in BESIDE]), [x])


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32"])
def test_numbers_as_torch_holds_them(name: str) -> None:
    numbers = [0, -1, 127, 128, 255, 256, 300, -129, 2**15, -(2**31), 2**32 + 5]
    assert [held(n, name) for n in numbers] == torch.tensor(numbers).to(getattr(torch, name)).tolist()
    assert held(True, name) is True and held(2.5, name) == 2.5 and held(-1, "int64") == -1


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_powers_with_negative_exponents(dtype: torch.dtype) -> None:
    x, y = torch.tensor([-3, -2, -1, 0, 1, 2, 5] * 7).to(dtype), torch.arange(-3, 4).repeat_interleave(7).to(dtype)
    keep = (x != 0) | (y >= 0)
    functions = [torch.pow, lambda x, y: 3**y, lambda x, y: (-1) ** y, lambda x, y: x**11]
    check(Op(lambda x, y: [f(x, y) for f in functions]), [x[keep], y[keep]])


def test_differences_of_whole_numbers_in_losses_are_the_librarys() -> None:
    """In uint8 they wrap, before a loss makes floats of them."""
    x, y = (torch.randint(0, 9, (5, 7), generator=torch.Generator().manual_seed(n)).to(torch.uint8) for n in (1, 2))
    losses = {
        "aten.triplet_margin_loss.default": lambda x, y: F.triplet_margin_loss(x, y, x + 1),
        "aten.pairwise_distance.default": F.pairwise_distance,
        "aten.l1_loss.default": lambda x, y: F.l1_loss(x, y, reduction="sum"),
        "aten.margin_ranking_loss.default": lambda x, y: F.margin_ranking_loss(x, y, x.float(), margin=0.5),
    }
    check(Op(lambda x, y: [f(x, y) for f in losses.values()]), [x, y], library=list(losses))
