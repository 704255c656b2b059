"""The few best of short rows by lanes: places of equal values, rows of any length, types, special numbers; builds."""

from __future__ import annotations

import itertools

import pytest
import torch

from hipwright.engine import write
from hipwright.engine.templates.select.lanes import sorting_network
from tests.engine.harness import Op, captured, run
from tests.engine.template_builds import builds

LENGTHS = (8, 9, 33, 130, 300)  # against 8 to 64 captured: one tile of a row, parts of one, several


def stable_topk(x: torch.Tensor, k: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The expected result: equal values in the order of their indices."""
    values, places = torch.sort(x, dim=-1, descending=largest, stable=True)
    return values[..., :k], places[..., :k]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("captured_length", [8, 60, 128])
@pytest.mark.parametrize(("k", "largest"), [(8, True), (5, False), (1, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.matrix(keep=3)
def test_indices_of_equal_values(dtype: torch.dtype, k: int, largest: bool, captured_length: int, wave: int) -> None:
    model = Op(lambda x: x.topk(k, -1, largest))
    g = torch.Generator().manual_seed(5)
    program = write(captured(model, [torch.randn(3, captured_length, generator=g).to(dtype)]))
    assert "lanes a row" in program.text
    for length, high in itertools.product(LENGTHS, (1, 4, 90)):
        x = torch.randint(-high, high, (5, length), generator=g).to(dtype)
        got, _ = run(program, model, [x], wave=wave, checked=length == 33)
        for g_, e in zip(got, stable_topk(x, k, largest), strict=True):
            assert torch.equal(g_, e), (length, high)


@pytest.mark.parametrize("largest", [True, False])
def test_special_numbers(largest: bool) -> None:
    bad, far = float("nan"), float("inf")
    rows = torch.tensor([[-far] * 11, [bad] * 11, [bad, far, -far, -0.0, 0.0, bad, 1.0, -1.0, -far, 2.0, -0.0]])
    model = Op(lambda x: x.topk(6, -1, largest))
    got, _ = run(write(captured(model, [rows])), model, [rows])
    expected = stable_topk(rows, 6, largest)
    assert torch.equal(torch.nan_to_num(got[0], 7e30), torch.nan_to_num(expected[0], 7e30))
    assert torch.equal(got[1], expected[1])
    lowest = torch.full((2, 9), -(2**31), dtype=torch.int32)
    model = Op(lambda x: x.topk(3, -1, largest))
    got, _ = run(write(captured(model, [lowest])), model, [lowest])
    assert torch.equal(got[1], torch.tensor([[0, 1, 2]] * 2))
    got, _ = run(write(captured(model, [lowest])), model, [~lowest])
    assert torch.equal(got[1], torch.tensor([[0, 1, 2]] * 2))


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_the_network_sorts(n: int) -> None:
    """By the 0-1 principle."""
    for bits in itertools.product((0, 1), repeat=n):
        a = list(bits)
        for i, j in sorting_network(n):
            a[i], a[j] = max(a[i], a[j]), min(a[i], a[j])
        assert a == sorted(bits, reverse=True)


def test_builds() -> None:
    for shape in ((4096, 128), (64, 1024)):
        builds(Op(lambda x: x.topk(8)), [torch.empty(shape)])
