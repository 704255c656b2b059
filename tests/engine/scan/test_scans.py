"""Scans with a prologue and following values in one kernel: along rows, by chunks, down columns, flipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import explain, space
from tests.engine.harness import Op, captured, check, kernels_in
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def scaled(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cumsum(x * y, 1) * y[:1] + y[:, :1]


def twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    total = torch.relu(x).cumsum(1)
    return total, torch.tanh(total - y), total - torch.relu(x)


def backwards(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * y).flip(1).cumsum(1).flip(1) + y


def product(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.where(y > 0, (1 + x * 0.01).cumprod(1), y)


FOLLOWED = [scaled, twice, backwards, product]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 777), (2, 512), (2, 6000), (3, 21, 9)])
@pytest.mark.parametrize("function", FOLLOWED, ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_one_kernel(function: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype, wave: int) -> None:
    inputs = [draw(*shape, dtype=dtype), draw(*shape, dtype=dtype).flip(1).contiguous()]
    model = Op(function)
    chosen = {k: "chunks" for k in space(captured(model, inputs)) if k.startswith("map:")}
    text = check(model, inputs, choices={**chosen, "SCAN_BLOCK": 128, "SCAN_ITEMS": 2}, wave=wave)
    assert kernels_in(text) == 1
    assert ("await_tile_prefix(" in text) == (shape[1] == 6000)
    assert ("store_reversed<" in text or "store_whole_vectors_reversed<" in text) == (
        function is backwards and len(shape) == 2
    )


def test_whole_numbers_and_other_shapes() -> None:
    x = torch.arange(60, dtype=torch.int32).reshape(5, 12)
    text = check(Op(lambda x: x.cumsum(1) // 3 + 1), [x], other=[torch.arange(7)[None].int()])
    assert kernels_in(text) == 1
    narrow = Op(lambda x: torch.cumsum(x, 1, dtype=torch.int8).long() + 1)
    assert kernels_in(check(narrow, [x])) == 2


def test_a_scan_with_other_readers_is_stored() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        total = x.cumsum(1)
        return total * total.flip(1)

    def part(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.cumsum(1)[:, 3:20])

    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1).t() * 2

    for function in (both, part, turned):
        check(Op(function), [draw(9, 33) * 0.1])
        assert len(explain(captured(Op(function), [draw(9, 33)]))["kernels"]) == 2


def test_nan_affects_only_later_elements() -> None:
    x = draw(3, 300)
    x[1, 100], x[2, 40] = float("nan"), float("inf")
    check(Op(lambda x: x.cumsum(1) * 2 + x), [x])
    check(Op(lambda x: x.flip(1).cumsum(1).flip(1) * 2), [x], other=[draw(0, 7)])


def test_builds() -> None:
    large = [torch.empty(4096, 4096), torch.empty(4096, 4096)]
    for function in (scaled, twice):
        builds(Op(function), large)
    builds(Op(backwards), [t.bfloat16() for t in large])
    builds(Op(scaled), [torch.empty(4, 1 << 22)] * 2)
    builds(Op(twice), [torch.empty(64, 512, 512)] * 2)


@pytest.mark.parametrize("shape", [(1,), (5, 1), (3, 1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_of_one_element_are_stored_by_one_thread(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    at = 1 if len(shape) > 1 else 0
    check(Op(lambda x: torch.cumsum(x, at)), [draw(*shape, dtype=dtype)])
    check(Op(lambda x: torch.cumsum(x, at).transpose(0, -1) * 2), [draw(*shape, dtype=dtype)])
