"""Sums of a nudged float64 run move by rounding errors of their own, and nothing else does."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from hipwright.task.host.double_precision import float64
from hipwright.task.host.rounded_sums import RoundedSums

UNIT = 2.0**-24


def run(fn, size: float | None, seed: int = 1, dtype: str = "float32") -> torch.Tensor:
    sums = None if size is None else RoundedSums(dtype, seed, size)
    with float64(sums=sums):
        return fn()


A, B = torch.randn(64, 900, dtype=torch.float64), torch.randn(900, 32, dtype=torch.float64)
IMAGE, FILTER = torch.randn(2, 9, 8, 8, dtype=torch.float64), torch.randn(6, 9, 3, 3, dtype=torch.float64)
SUMS = {
    "product": (lambda: A @ B, 900),
    "linear": (lambda: F.linear(A, B.t(), torch.zeros(32, dtype=torch.float64)), 900),
    "batched": (lambda: torch.bmm(A.view(4, 16, 900), B.expand(4, 900, 32)), 900),
    "convolution": (lambda: F.conv2d(IMAGE, FILTER), 81),
    "channels last": (lambda: F.conv2d(IMAGE.to(memory_format=torch.channels_last), FILTER), 81),
    "sum": (lambda: A.sum(-1), 900),
    "mean": (lambda: A.mean(0), 64),
    "variance": (lambda: A.var(-1), 900),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_moves_by_roundings_that_grow_with_its_terms(name: str) -> None:
    fn, terms = SUMS[name]
    want, most = fn(), 4 * UNIT * max(1.0, terms**0.5 / 3)
    up, down = run(fn, 4.0) - want, run(fn, -4.0) - want
    relative = (up / want).abs()
    assert 0.5 * most < relative.max() <= most * (1 + 1e-6) and relative.min() < relative.max()
    torch.testing.assert_close(up, -down, rtol=1e-6, atol=1e-13)
    assert not torch.equal(run(fn, 4.0, seed=2) - want, up)
    narrow = ((run(fn, 4.0, dtype="float16") - want) / want).abs().max()
    assert 4 * 2.0**-12 < narrow <= 4 * 2.0**-11 * (1 + 1e-6), "a half type accumulates in float32, and rounds once"


@pytest.mark.parametrize(
    "fn",
    [lambda: A + 1, lambda: A.exp(), lambda: A.t(), lambda: A.amax(-1), lambda: A.cumsum(-1), lambda: A.gt(0).sum(-1)],
)
def test_other_results_keep_their_bits(fn) -> None:
    assert torch.equal(run(fn, 4.0), run(fn, None))


def test_two_equal_products_move_apart_and_no_generator_is_drawn_from() -> None:
    before = torch.get_rng_state()
    assert run(lambda: A @ B - A @ B, 4.0).abs().max() > UNIT
    assert torch.equal(before, torch.get_rng_state())
