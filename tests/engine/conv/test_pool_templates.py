"""Pooling as stencils: values and indices over windows, strides, paddings and dtypes; AMD builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import space
from tests.engine.harness import captured, check, kernels_in
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype)


class Op(nn.Module):
    """One function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def verify(function: Callable[..., Any], x: torch.Tensor, tile: str, *, grid: str = "", **kw: Any) -> str:
    """Checks that the stencil of this tile, and this grid, is correct and is the only kernel."""
    model = Op(function)
    keys = [k for k in space(captured(model, [x])) if k.startswith("call:") and k.count(":") == 1]
    chosen = {f"{k}:tile": tile for k in keys} | {f"{k}:grid": grid for k in keys if grid}
    text = check(model, [x], choices=chosen, **kw)
    assert f"tile {tile}" in text, text
    assert kernels_in(text) == 1, text
    return text


CASES: list[tuple[Callable[..., Any], tuple[int, ...], str]] = [
    (lambda x: F.max_pool2d(x, 2), (2, 3, 8, 12), "1x2x2"),
    (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 16), "1x4x2"),
    (lambda x: F.max_pool2d(x, 3, 1, 1, dilation=1), (2, 3, 9, 10), "1x2x2"),
    (lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), dilation=2), (1, 2, 11, 13), "1x2x1"),
    (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (1, 2, 8, 10), "1x1x2"),
    (lambda x: F.relu(F.max_pool1d(x, 4, 4)), (2, 3, 64), "1x1x1"),
    (lambda x: F.max_pool3d(x, 3, 2, 1), (1, 2, 5, 6, 8), "1x2x2"),
    (lambda x: F.max_pool2d(x, 3), (3, 9, 9), "1x1x1"),
    (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 8), "1x2x2"),
    (lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), (1, 3, 7, 8), "1x2x4"),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (1, 3, 8, 8), "1x2x2"),
    (lambda x: F.avg_pool2d(x, 2, divisor_override=3) + 1, (1, 3, 8, 8), "1x1x2"),
    (lambda x: F.avg_pool1d(x, 5, 1, 2), (2, 3, 40), "1x1x4"),
    (lambda x: F.avg_pool3d(x, 2, 2, count_include_pad=False), (1, 2, 4, 6, 8), "1x1x2"),
    (lambda x: F.avg_pool2d(x, 33, 1, 16), (1, 1, 40, 33), "1x1x2"),
    (lambda x: F.avg_pool2d(x.square(), 2), (1, 2, 6, 8), "1x2x4"),
]


@pytest.mark.parametrize(("function", "shape", "tile"), CASES)
@pytest.mark.matrix(keep=3)
def test_values(function: Callable[..., Any], shape: tuple[int, ...], tile: str) -> None:
    verify(function, draw(*shape), tile)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", [1, 8])
def test_dtypes_and_other_shapes(dtype: torch.dtype, which: int) -> None:
    function, shape, _ = CASES[which]
    verify(function, draw(*shape, dtype=dtype), "1x4x2", other=[draw(3, 2, 7, 11, dtype=dtype)])


@pytest.mark.parametrize("tile", ["1x1x1", "1x2x4"])
def test_indices(tile: str) -> None:
    x = torch.randint(0, 4, (2, 3, 9, 8), generator=torch.Generator().manual_seed(2)).float()  # many ties
    verify(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, tile, other=[x[:, :, :, :7].contiguous()])
    verify(lambda x: F.max_pool3d(x, 2, 1, return_indices=True), x[None], tile)


PADDED = [
    (lambda x: F.max_pool2d(x, 2, 2, 1, 3, return_indices=True), (2, 3, 8, 8)),
    (lambda x: F.max_pool2d(x, 2, 2, 1, 3, return_indices=True), (2, 3, 2, 2)),
    (lambda x: F.max_pool2d(x, (3, 2), 2, 1, (1, 2), return_indices=True), (2, 2, 1, 1)),
    (lambda x: F.max_pool2d(x, 2, 1, 1, (2, 3), return_indices=True), (2, 2, 1, 3)),
    (lambda x: F.max_pool3d(x, (2, 1, 2), 1, (1, 0, 1), (3, 1, 2), return_indices=True), (2, 2, 2, 4, 1)),
    (lambda x: F.max_pool1d(x, 2, 1, 1, 5, return_indices=True), (2, 3, 4)),
    (lambda x: F.max_pool2d(x - float("inf"), 3, 2, 1, return_indices=True), (2, 2, 5, 5)),
]


@pytest.mark.parametrize("form", ["generic", "stencil"])
@pytest.mark.parametrize(("function", "shape"), PADDED)
def test_the_place_in_a_window_of_padding(function: Callable[..., Any], shape: tuple[int, ...], form: str) -> None:
    """Nothing in it is above -Inf: torch gives its first place behind the padding in front, be it outside."""
    model, x = Op(function), draw(*shape)
    calls = [key for key in space(captured(model, [x])) if key.startswith("call:") and key.count(":") == 1]
    text = check(model, [x], choices=dict.fromkeys(calls, form))
    assert calls and ("tile" in text) == (form == "stencil")


TURNED: list[tuple[Callable[..., Any], tuple[int, ...], str]] = [
    (lambda x: F.avg_pool2d(x.permute(0, 3, 1, 2), 3, 1), (2, 9, 8, 32), "1x4x4"),
    (lambda x: F.avg_pool2d(x.permute(0, 3, 1, 2).chunk(2, 1)[1] * 2, 2, 2), (2, 9, 8, 64), "1x2x4"),
    (lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1, return_indices=True), (2, 9, 10, 32), "1x4x4"),
    (lambda x: F.max_pool3d(x.permute(3, 0, 1, 2), 2), (4, 5, 6, 32), "1x2x2"),
    (lambda x: F.relu(F.avg_pool1d(x.transpose(1, 2), 5, 1, 2)), (2, 20, 40), "1x1x4"),
]


@pytest.mark.parametrize(("function", "shape", "tile"), TURNED)
def test_threads_run_along_channels_that_are_neighbours_in_memory(
    function: Callable[..., Any], shape: tuple[int, ...], tile: str
) -> None:
    x = draw(*shape)
    assert [c.default for k, c in space(captured(Op(function), [x])).items() if k.endswith(":grid")] == ["channels"]
    other = draw(*(n + 1 for n in shape[:-1]), shape[-1])
    for form in ("channels", "plane"):
        verify(function, x, tile, other=[other], grid=form)


def test_what_a_channels_last_convolution_leaves_is_pooled_along_channels() -> None:
    """A thread has vectors of channels of four neighbours of a row, whether they divide it or not."""
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.AvgPool2d(3, 1)).half().to("meta")
    found = space(captured(model, [torch.empty(128, 64, 31, 31, dtype=torch.float16, device="meta")]))
    assert found["channels_last:conv2d"].default
    assert [found[f"call:avg_pool2d:{key}"].default for key in ("grid", "tile")] == ["vectors", "1x1x4"]


def test_planes_and_few_channels_are_read_along_rows() -> None:
    for function in (lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x.permute(0, 3, 1, 2), 2)):
        keys = space(captured(Op(function), [draw(2, 32, 12, 8)]))
        (grid,) = (choice for key, choice in keys.items() if key.endswith(":grid"))
        assert "channels" not in grid.options


def test_lp_pool_and_even_adaptive_pools() -> None:
    model = Op(lambda x: (F.lp_pool2d(x, 2, 3, 2), F.adaptive_avg_pool2d(x, 4), F.adaptive_max_pool2d(x, (2, 4))))
    check(model, [draw(2, 3, 8, 8)])


def test_nan_wins_over_numbers() -> None:
    x = draw(1, 1, 6, 8)
    x[0, 0, 2, 3] = float("nan")
    verify(lambda x: F.max_pool2d(x, 3, 2, 1), x, "1x2x2")


BIG = [
    (lambda x: F.max_pool2d(x, 2), (16, 64, 112, 112), torch.float32),
    (lambda x: F.max_pool2d(x, 3, 2, 1), (16, 64, 112, 112), torch.float16),
    (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (16, 64, 112, 112), torch.float32),
    (lambda x: F.avg_pool3d(x, 3, 1, 1), (4, 32, 16, 56, 56), torch.float32),
    (lambda x: F.avg_pool1d(x, 8), (16, 64, 65536), torch.bfloat16),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("function", "shape", "dtype"), BIG)
def test_builds(function: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert "tile 1x" in builds(Op(function), [torch.empty(shape, dtype=dtype)], 4)


class Stem(nn.Module):
    """A norm in evaluation with statistics of note and an activation before a pooling."""

    def __init__(self, pool: Callable[..., Any], norm: nn.Module, channels: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm, self.pool = norm.to(dtype).eval(), pool
        for place, name in enumerate(("running_mean", "running_var", "weight", "bias")):
            tensor = getattr(self.norm, name)
            tensor.data = (draw(channels).abs() + 0.3 * place).to(dtype)

    def forward(self, x: torch.Tensor) -> Any:
        return self.pool(torch.relu(self.norm(x)))


NORMED: list[tuple[Callable[..., Any], type[nn.Module], tuple[int, ...], bool]] = [
    (lambda x: F.max_pool2d(x, 3, 2, 1), nn.BatchNorm2d, (2, 5, 9, 16), True),
    (lambda x: F.max_pool2d(x, 2, return_indices=True), nn.BatchNorm2d, (2, 5, 8, 7), True),
    (lambda x: F.avg_pool2d(x, 2), nn.BatchNorm2d, (2, 5, 8, 16), True),
    (lambda x: F.avg_pool1d(x, 4, 4), nn.BatchNorm1d, (3, 6, 24), True),
    (lambda x: F.max_pool3d(x, 2), nn.BatchNorm3d, (2, 3, 4, 6, 8), True),
    (lambda x: F.max_pool2d(x, 5, 1, 2), nn.BatchNorm2d, (2, 5, 8, 9), False),  # each element is read many times
    (lambda x: F.max_pool2d(x.cumsum(-1), 2), nn.BatchNorm2d, (2, 5, 8, 8), False),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("pool", "norm", "shape", "one"), NORMED)
def test_a_norm_is_computed_where_a_pooling_reads(
    pool: Callable[..., Any], norm: type[nn.Module], shape: tuple[int, ...], one: bool, dtype: torch.dtype
) -> None:
    model = Stem(pool, norm(shape[1]), shape[1], dtype)
    x, other = draw(*shape, dtype=dtype), draw(1, *shape[1:], dtype=dtype)
    text = check(model, [x], other=[other])
    assert (kernels_in(text) == 1) == one, text
    apart = check(model, [x], choices={"pool_prologue": False})
    assert kernels_in(apart) > 1


def test_a_norm_before_a_pooling_builds() -> None:
    model = Stem(lambda x: F.max_pool2d(x, 3, 2, 1), nn.BatchNorm2d(64), 64, torch.float16)
    builds(model, [torch.empty(8, 64, 112, 112, dtype=torch.float16)])


@pytest.mark.parametrize("size", [4, 5])
def test_padded_channels_are_read_in_vectors(size: int) -> None:
    """Sums over neighbouring channels, of which a whole row is missing before the first and behind the last."""
    norm = nn.LocalResponseNorm(size, alpha=0.1)
    text = verify(norm, draw(2, 7, 6, 16) * 4, "1x2x4", other=[draw(1, 3, 5, 9)])
    assert "load_or_zero<" in text and "powf" not in text and "pow_three_quarters(" in text


def test_rows_padded_along_themselves_are_read_by_elements() -> None:
    text = verify(lambda x: F.avg_pool2d(F.pad(x.square(), (1, 1)), (3, 1), 1), draw(2, 3, 6, 16), "1x2x4")
    assert "load_or_zero<" not in text
