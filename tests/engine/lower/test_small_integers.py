"""Integers of 8 and 16 bits wrap where torch's do, and go into function templates as the type they are computed in.

And kernels of truths, of whole numbers and of doubles that did not build.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

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


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_extremes_of_truths(dim: int) -> None:
    functions = [
        lambda x: torch.max(x, dim),
        lambda x: torch.min(x, dim, keepdim=True),
        lambda x: torch.amax(x, dim),
        lambda x: torch.amin(x, (dim, -1)) if dim < 2 else x.amin(),
        lambda x: (x.max(), x.min()),
    ]
    x = torch.rand(5, 7, 6, generator=torch.Generator().manual_seed(2)) > 0.6
    check(Op(lambda x: [f(x) for f in functions]), [x], other=[x[:2, :3]])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_activations_of_whole_numbers(dtype: torch.dtype) -> None:
    functions = [lambda x: F.threshold(x, 3, 7), lambda x: F.hardtanh(x, -2, 4), F.hardtanh, F.relu6, F.relu]
    check(Op(lambda x: [f(x) for f in functions]), [torch.arange(-9, 12, dtype=dtype).view(3, 7)])


def test_halves_of_doubles() -> None:
    """Rounded to float first, as torch does; the conversions in one would be an instruction that no CPU has."""
    x = torch.randn(40, 3, dtype=torch.float64)
    check(Op(lambda x: (x.half(), x.half().double(), (x * 3).bfloat16().double())), [x])
