"""Pools along rows of which a thread has several outputs, each a block apart: values, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space
from tests.engine.harness import Op, captured, check, kernels_in
from tests.engine.template_builds import builds

Case = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64).to(dtype)


CASES: list[Case] = [
    (lambda x: F.avg_pool1d(x, 2, 3), (2, 3, 1001), (3, 2, 770)),
    (lambda x: F.avg_pool1d(x, 2, 3, 1), (2, 3, 129), (1, 4, 32)),
    (lambda x: F.avg_pool1d(x, 4, 1, count_include_pad=False), (2, 3, 131), (2, 2, 9)),
    (lambda x: F.avg_pool1d(x, 5, 3, 2, ceil_mode=True, count_include_pad=False), (2, 3, 516), (3, 1, 31)),
    (lambda x: F.avg_pool1d(x, 4, 3, ceil_mode=True), (2, 3, 201), (3, 5, 77)),
    (lambda x: F.max_pool1d(x, 2, 1), (1, 5, 327), (1, 2, 327)),
    (lambda x: F.max_pool1d(x, 3, 2, 1, dilation=3), (2, 3, 140), (3, 2, 140)),
    (lambda x: F.max_pool1d(F.glu(x, 1), 2, 2), (2, 4, 22), (3, 6, 22)),
    (lambda x: F.max_pool1d(x, 2, 2), (2, 3, 1030), (3, 2, 1030)),
    (lambda x: F.avg_pool1d((x - 0.3) / 1.7, 3, 1).relu() + 1, (7, 35), (5, 12)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", range(len(CASES)))
@pytest.mark.parametrize("form", ["flat", "plane"])
@pytest.mark.matrix(keep=12)
def test_values(form: str, which: int, dtype: torch.dtype) -> None:
    function, shape, other = CASES[which]
    model, x = Op(function), draw(*shape, dtype=dtype)
    x.view(-1)[7] = float("nan")
    keys = {key.rsplit(":", 1)[-1]: key for key in space(captured(model, [x])) if key.startswith("call:")}
    choices = {keys["apart"]: 4, keys["grid"]: form}
    text = check(model, [x], choices=choices, other=[draw(*other, dtype=dtype)])
    assert "4 outputs of a thread" in text and kernels_in(text) == 1, text


@pytest.mark.parametrize("apart", [1, 2, 8])
def test_numbers_of_outputs(apart: int) -> None:
    choices = {"call:avg_pool1d:apart": apart, "STENCIL_BLOCK": 64}
    text = check(Op(CASES[0][0]), [draw(2, 3, 1601)], choices=choices, other=[draw(1, 2, 97)])
    assert ("outputs of a thread" in text) == (apart > 1)


def test_other_pools_have_neighbouring_outputs() -> None:
    """Planes, channels that are neighbours in memory, and maxima with their places."""
    for function, shape in (
        (lambda x: F.avg_pool2d(x, 2, 3), (2, 3, 8, 8)),
        (lambda x: F.avg_pool1d((x * 2).transpose(1, 2), 3, 1), (2, 20, 40)),
        (lambda x: F.max_pool1d(x, 2, 3, return_indices=True), (2, 3, 20)),
    ):
        assert not any(key.endswith(":apart") for key in space(captured(Op(function), [draw(*shape)])))


def test_builds() -> None:
    builds(Op(CASES[1][0]), [torch.empty(32, 128, 16384, dtype=torch.float16)])
    builds(Op(lambda x: F.max_pool1d(x, 2, 2)), [torch.empty(32, 64, 8190)])
