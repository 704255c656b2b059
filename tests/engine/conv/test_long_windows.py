"""Pools whose windows are long: rows that many threads reduce, whatever their strides, paddings and borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check, kernels_in
from tests.engine.lower.test_operators import Outputs, draw, whole

HALF = torch.float16
LONG: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (lambda x: F.relu6(F.adaptive_max_pool2d(x.clamp(min=-0.5), 1)), (3, 4, 9, 7)),
    (lambda x: F.adaptive_max_pool3d(x, (None, 1, 1)), (2, 3, 2, 17, 18)),
    (lambda x: F.adaptive_max_pool2d(x, (2, 1)), (2, 3, 34, 17)),
    (lambda x: F.adaptive_max_pool1d(x, 3), (2, 3, 1000)),
    (lambda x: F.adaptive_avg_pool2d(x, (2, 1)) * 2, (2, 3, 34, 17)),
    (lambda x: F.adaptive_avg_pool1d(x, 3), (2, 3, 1000)),
    (lambda x: F.max_pool2d(x, 17), (2, 3, 35, 52)),
    (lambda x: F.max_pool2d(x, 17, 9, 8, ceil_mode=True), (2, 3, 35, 30)),
    (lambda x: F.max_pool2d(x, (1, 300), (1, 300), (0, 120), (1, 2)), (2, 3, 2, 1300)),
    (lambda x: F.avg_pool2d(x, 17, 9, 8, count_include_pad=False), (2, 3, 35, 30)),
    (lambda x: F.avg_pool2d(x, (20, 20), divisor_override=7), (2, 3, 41, 40)),
    (lambda x: F.avg_pool1d(x, 400), (2, 3, 1300)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("function", "shape"), LONG)
@pytest.mark.matrix(keep=4)
def test_values(function: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    other = (shape[0] + 1, *shape[1:-1], shape[-1] + 3)
    text = check(Op(function), [draw(*shape, dtype=dtype)], other=[draw(*other, dtype=dtype)])
    assert kernels_in(text) == 1 and "tile" in text and "_k0 <" not in text, "threads share a row"


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_places_of_equal_elements_and_nans(dtype: torch.dtype) -> None:
    """The first of equal ones, the last NaN, and of nothing above -Inf the window's start."""
    functions = [
        lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, (2, 1), return_indices=True),
        lambda x: F.max_pool2d(x, 17, 9, 8, return_indices=True),
        lambda x: F.max_pool1d(x[0], 18, return_indices=True),
    ]
    x = whole(-2, 3, 2, 3, 37, 18).to(dtype)
    x[0, 1, 5, 3] = x[0, 1, 5, 4] = x[1, 0, 30, 2] = torch.nan
    x[1, 2] = -torch.inf
    check(Outputs(functions), [x])


DEFAULTS: list[tuple[Callable[..., Any], tuple[int, ...], bool]] = [
    (lambda x: F.adaptive_max_pool2d(x, 1), (128, 48, 192, 32), True),
    (lambda x: F.adaptive_max_pool2d(x, 4), (128, 48, 192, 32), True),
    (lambda x: F.adaptive_max_pool2d(x, 16), (128, 48, 192, 32), False),
    (lambda x: F.max_pool2d(x, 32), (128, 48, 192, 32), True),
    (lambda x: F.max_pool2d(x, 4), (128, 48, 192, 32), False),
    (lambda x: F.avg_pool1d(x, 1024), (128, 48, 8192), True),
    (lambda x: F.avg_pool1d(x, 513, 1, 256), (128, 48, 8192), False),
]


@pytest.mark.parametrize(("function", "shape", "rows"), DEFAULTS)
def test_no_thread_walks_a_long_window_of_its_own(
    function: Callable[..., Any], shape: tuple[int, ...], rows: bool
) -> None:
    """Where windows overlap and are many, neighbouring threads read neighbouring elements."""
    graph = captured(Op(function).to("meta"), [torch.empty(shape, device="meta")])
    keys = [key for key, choice in space(graph).items() if choice.default in ("block", "lanes")]
    assert bool(keys) == rows, write(graph).text


def test_places_are_computed_where_they_are_used() -> None:
    used, unused = (
        check(Op(lambda x, n=n: F.adaptive_max_pool2d(x, 1, return_indices=True)[:n]), [draw(2, 3, 20, 30)])
        for n in (2, 1)
    )
    assert "argmax" in used and "argmax" not in unused
