"""Large windows of few outputs, shared by lanes; and vectors of channels of a channels-last image: values, defaults."""

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
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(dtype)


SHARED: list[Case] = [
    (lambda x: F.avg_pool3d((x - 0.3) / 1.7, 4), (1, 6, 9, 8, 5), (1, 3, 5, 8, 6)),
    (lambda x: F.avg_pool3d(x, 4), (2, 3, 8, 8, 12), (3, 2, 8, 12, 8)),
    (lambda x: F.max_pool3d(F.glu(x, 1), 4), (2, 6, 9, 9, 8), (3, 2, 5, 11, 12)),
    (lambda x: F.max_pool3d(x, (2, 3, 4), (1, 2, 4), (1, 1, 2)), (2, 3, 5, 6, 8), (1, 2, 4, 7, 9)),
    (lambda x: F.max_pool2d(x, (4, 5), 3, 2, dilation=(2, 1)), (2, 3, 11, 13), (1, 3, 12, 9)),
    (lambda x: F.avg_pool2d(x, 5, 5, ceil_mode=True, count_include_pad=False), (2, 3, 11, 13), (1, 2, 10, 14)),
    (lambda x: F.avg_pool2d(x, 8, 8, 3, count_include_pad=False), (2, 2, 16, 21), (1, 3, 19, 8)),
    (lambda x: F.avg_pool2d(x, 4, 2, 1, divisor_override=5).relu() + 1, (2, 2, 8, 9), (1, 2, 9, 8)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", range(len(SHARED)))
@pytest.mark.matrix(keep=9)
def test_lanes_share_a_window(which: int, dtype: torch.dtype) -> None:
    function, shape, other = SHARED[which]
    text = check(Op(function), [draw(*shape, dtype=dtype)], other=[draw(*other, dtype=dtype)])
    assert "lanes a window" in text and kernels_in(text) == 1, text


@pytest.mark.parametrize("lanes", [1, 2, 8])
@pytest.mark.parametrize("wave", [32, 64])
def test_numbers_of_lanes(lanes: int, wave: int) -> None:
    x = draw(2, 3, 6, 9, 8)
    x[1, 2, 3, 3, 3], x[0, 0] = float("nan"), -float("inf")
    text = check(
        Op(lambda x: F.max_pool3d(x, 3, 2, 1)),
        [x],
        choices={"call:max_pool3d:lanes": lanes},
        wave=wave,
        other=[draw(1, 2, 5, 4, 3)],
    )
    assert ("lanes a window" in text) == (lanes > 1)


def test_small_windows_and_places_of_maxima_are_not_shared() -> None:
    for function in (lambda x: F.avg_pool2d(x, 3), lambda x: F.max_pool2d(x, 4, return_indices=True)):
        assert not any(key.endswith(":lanes") for key in space(captured(Op(function), [draw(2, 3, 12, 12)])))


def turned(x: torch.Tensor, channels: int) -> torch.Tensor:
    """A channels-last image of so many channels, whatever its other sizes."""
    return (x * torch.full((channels,), 2.0, dtype=x.dtype)).movedim(-1, 1)


TURNED: list[Case] = [
    (lambda x: F.avg_pool2d(turned(x, 32), 3, 1), (2, 9, 8, 32), (1, 5, 12, 32)),
    (lambda x: F.avg_pool2d(turned(x, 72), 3, 2, 1), (2, 7, 35, 72), (1, 8, 4, 72)),
    (lambda x: F.avg_pool2d(torch.mul(*turned(x, 96).chunk(2, 1)), 2), (2, 9, 8, 96), (1, 6, 7, 96)),
    (lambda x: F.max_pool2d(turned(x, 32), 3, 2, 1, dilation=2), (2, 9, 10, 32), (1, 12, 9, 32)),
    (lambda x: F.max_pool2d(turned(x, 40), 2, 2, ceil_mode=True), (2, 9, 9, 40), (1, 8, 3, 40)),
    (lambda x: F.max_pool3d(turned(x, 32), 3, 2, 1), (2, 4, 5, 6, 32), (3, 3, 6, 4, 32)),
    (lambda x: F.relu(F.avg_pool1d(turned(x, 40), 5, 1, 2)), (2, 20, 40), (1, 33, 40)),
    (
        lambda x: F.avg_pool2d(turned(x, 64), 3, 1, 1, count_include_pad=False).sigmoid(),
        (2, 5, 9, 64),
        (3, 4, 33, 64),
    ),
    (lambda x: F.avg_pool2d(turned(x, 32), 9, 3, divisor_override=7), (2, 12, 13, 32), (3, 9, 16, 32)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", range(len(TURNED)))
@pytest.mark.matrix(keep=9)
def test_threads_take_vectors_of_channels(which: int, dtype: torch.dtype) -> None:
    function, shape, other = TURNED[which]
    x = draw(*shape, dtype=dtype)
    x.view(-1)[5] = float("nan")
    text = check(Op(function), [x], other=[draw(*other, dtype=dtype)])
    assert f"of {16 // x.element_size()} channels" in text and kernels_in(text) == 1, text


@pytest.mark.parametrize("columns", [1, 2])
def test_outputs_of_a_thread(columns: int) -> None:
    model, x = Op(TURNED[1][0]), draw(2, 7, 35, 72, dtype=torch.float16)
    (key,) = (key for key in space(captured(model, [x])) if key.endswith(":tile"))
    text = check(model, [x], choices={key: f"1x1x{columns}"}, other=[draw(1, 8, 4, 72, dtype=torch.float16)])
    assert f"tile 1x1x{columns} of 8 channels" in text


def test_channels_that_are_no_whole_vectors_are_read_one_by_one() -> None:
    """Of channels from the third on no vector begins where one of memory does."""
    for function in (
        lambda x: F.avg_pool2d(x[..., 3:].permute(0, 3, 1, 2), 2),
        lambda x: F.avg_pool2d(x[..., :-2].permute(0, 3, 1, 2), 2),
    ):
        keys = space(captured(Op(function), [draw(2, 6, 5, 38, dtype=torch.float16)]))
        (grid,) = (choice for key, choice in keys.items() if key.endswith(":grid"))
        assert grid.default == "channels" and "vectors" not in grid.options


def test_unaligned_channels_are_copied() -> None:
    function = TURNED[0][0]
    x = draw(2 * 9 * 8 * 32 + 1)[1:].view(2, 9, 8, 32)
    check(Op(function), [draw(2, 9, 8, 32)], other=[x])


def test_builds() -> None:
    builds(Op(TURNED[1][0]), [torch.empty(64, 56, 56, 72, dtype=torch.float16)])
    builds(Op(SHARED[2][0]), [torch.empty(8, 64, 20, 20, 20)])


FUSED: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], int]] = [
    (lambda x: F.avg_pool2d(torch.sqrt((x + x.square() * 0.1) ** 2 + 1.0), 2), (2, 3, 9, 16), (3, 2, 7, 12), 1),
    (lambda x: F.max_pool3d(F.softsign(x * 0.7 + 0.1), 2), (2, 3, 4, 6, 8), (3, 2, 6, 4, 8), 1),
    (lambda x: F.max_pool2d(F.softsign(x * 0.7 + 0.1), 2, return_indices=True), (2, 3, 4, 6), (3, 2, 6, 4), 1),
    (lambda x: (F.avg_pool2d(y := F.softsign(x * 0.7 + 0.1), 2), y), (2, 3, 4, 6), (3, 2, 6, 4), 2),
    (lambda x: (lambda y: F.avg_pool2d(y, 2) + F.max_pool2d(y, 2))(x.exp() * 0.3), (2, 3, 4, 6), (3, 2, 6, 4), 3),
    (lambda x: F.avg_pool2d(F.softsign(turned(x, 32) * 0.7 + 0.1), 3, 2), (2, 9, 9, 32), (3, 7, 13, 32), 1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("which", range(len(FUSED)))
def test_what_a_pooling_reads_once_is_computed_there(which: int, dtype: torch.dtype) -> None:
    """However often the value that it is made of is used; but for a value that something else needs."""
    function, shape, other, kernels = FUSED[which]
    text = check(Op(function), [draw(*shape, dtype=dtype)], other=[draw(*other, dtype=dtype)])
    assert kernels_in(text) == kernels, text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("columns", [8, 6])
def test_rows_of_several_tensors_are_read_as_vectors(columns: int, dtype: torch.dtype) -> None:
    """Both halves of the channels; at other sizes, rows that no vector divides."""
    text = check(
        Op(lambda x: F.avg_pool2d(F.glu(x, 1), 2)),
        [draw(2, 6, 9, columns, dtype=dtype)],
        other=[draw(3, 4, 7, columns + 2, dtype=dtype)],
    )
    assert text.count("const auto vec") >= 2 and "if (!aligned)" in text, text
    check(
        Op(lambda x: F.max_pool3d(F.glu(x, 1), 2)),
        [draw(2, 6, 6, 4, columns, dtype=dtype)],
        other=[draw(3, 4, 10, 6, columns + 2, dtype=dtype)],
    )


def test_what_is_averaged_over_planes_is_computed_there() -> None:
    function = lambda x: F.adaptive_avg_pool2d(F.softsign(turned(x, 8) * 0.7 + 0.1), 1)  # noqa: E731
    text = check(Op(function), [draw(2, 5, 9, 8)], other=[draw(3, 7, 4, 8)])
    assert kernels_in(text) == 1, text
