"""Integers of 8 and 16 bits wrap where torch's do, and go into function templates as the type they are computed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.harness import Op, check

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clamped on both sides": lambda x: x.clamp(1, 6),
    "clamped and compared": lambda x: (x.flip(-1).clamp(1, 6) > 2).any(-1),
    "a maximum of sums that wrap": lambda x: torch.maximum(x + x, x * 3),
    "a minimum of a selection": lambda x: torch.minimum(torch.where(x > 3, x + x, x), x * 3).clamp(max=5),
    "a remainder of a product": lambda x: (x * 7) % 5,
    "a quotient of a sum": lambda x: (x + 100) // 3,
    "an absolute value of a difference": lambda x: (x - 5).abs().clamp(min=2),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_integers(name: str, dtype: torch.dtype) -> None:
    low = 0 if dtype == torch.uint8 else -120
    x = torch.randint(low, 120, (5, 33), generator=torch.Generator().manual_seed(1)).to(dtype)
    check(Op(FUNCTIONS[name]), [x])
