"""Sums of a nudged float64 run move by rounding errors of their own, and nothing else does."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from hipwright.task.host.double_precision import float64
from hipwright.task.host.modes.rounded_sums import RoundedSums

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


NORMS = {
    "layer": lambda x, w: torch.nn.functional.layer_norm(x, x.shape[-1:], w[: x.shape[-1]]),
    "layer, no weight": lambda x, w: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "group": lambda x, w: torch.nn.functional.group_norm(x, 2, w[: x.shape[1]]),
    "batch": lambda x, w: torch.nn.functional.batch_norm(x, None, None, w[: x.shape[1]], training=True),
    "batch, no weight": lambda x, w: torch.nn.functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_moves_as_far_as_the_error_of_a_large_mean(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x = (torch.randn(6, 4, 5, 8, generator=generator) + 1000.0).double()
    weight = torch.randn(8, generator=generator).double() + 2.0
    plain = NORMS[name](x, weight)
    moved = {}
    for size in (4.0, -4.0):
        with float64(sums=RoundedSums("float32", 5, size)):
            moved[size] = NORMS[name](x, weight) - plain
    terms = {"layer": 8, "layer, no weight": 8, "group": 80}.get(name, 240)
    most = 4.0 * 2.0**-24 * max(1.0, terms**0.5 / 3) * 1100.0 * 5.0 * 3.0
    far = moved[4.0].abs().max()
    assert 0.02 * most < far < most
    assert torch.allclose(moved[4.0], -moved[-4.0], rtol=1e-4, atol=1e-9 * float(far))
    with float64(sums=RoundedSums("bfloat16", 5, 4.0)):
        assert torch.equal(NORMS[name](x, weight) - plain, moved[4.0])  # half types add in float32
    assert torch.equal(NORMS[name](x, weight), plain)


def test_a_norm_by_given_statistics_does_not_move() -> None:
    x = torch.randn(6, 4, 5).double() + 1000.0
    norm = lambda: torch.nn.functional.batch_norm(x, torch.full((4,), 1000.0).double(), torch.ones(4).double())  # noqa: E731
    plain = norm()
    with float64(sums=RoundedSums("float32", 5, 4.0)):
        assert torch.equal(norm(), plain)
