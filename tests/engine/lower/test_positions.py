"""Positions of maxima and minima: the first of equals, NaN before numbers, rows of nothing but the worst value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.engine.harness import Op, check
from tests.engine.template_builds import builds


def awkward(rows: int, length: int) -> torch.Tensor:
    """Ties everywhere; some rows of infinities alone, of one NaN or several, of zeros of both signs."""
    x = torch.randint(-3, 4, (rows, length), generator=torch.Generator().manual_seed(5)).float()
    x[0], x[1] = float("-inf"), float("inf")
    x[2, length // 2 :] = float("nan")
    x[3] = float("nan")
    x[4] = -0.0
    x[4, length // 3 :: 2] = 0.0
    return x


def largest(x: torch.Tensor) -> Any:
    return x.argmax(1), x.max(1)


def smallest(x: torch.Tensor) -> Any:
    return x.argmin(1), x.min(1)


def down(x: torch.Tensor) -> Any:
    return x.t().contiguous().argmax(0), x.t().contiguous().argmin(0)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("length", [1, 37, 700, 3000])
@pytest.mark.parametrize("mapping", ["block", "lanes", "columns"])
@pytest.mark.parametrize("function", [largest, smallest, down], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_positions(function: Callable[..., Any], mapping: str, length: int, wave: int) -> None:
    choices = {f"map:{name}": mapping for name in ("argmax", "argmin", "argmax_kernel", "argmin_kernel")}
    choices |= {"ROW_BLOCK": 64, "ROW_VEC": 4, "ROW_ITEMS": 2, "cooperative:argmax_kernel": length == 3000}
    check(Op(function), [awkward(9, length)], choices=choices, wave=wave)


def test_whole_numbers() -> None:
    x = torch.full((4, 50), torch.iinfo(torch.int32).min, dtype=torch.int32)
    x[1, 7:9], x[2, 49] = 3, -5
    check(Op(lambda x: (x.argmax(1), x.argmin(1))), [x])
    check(Op(lambda x: (x.argmax(1) + 1, x.argmin())), [(x > 0).to(torch.uint8)])


def test_builds() -> None:
    builds(Op(largest), [torch.empty(4096, 32000)])
    builds(Op(down), [torch.empty(4096, 16384, dtype=torch.bfloat16)])
