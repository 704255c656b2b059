"""Dimensions of scalars, stacks, padding that keeps a size, and positions in windows of several sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.engine.harness import check
from tests.engine.lower.test_operators import Outputs, draw, whole

ZERO = torch.tensor([0])


def test_a_scalar_takes_the_dimensions_that_torch_gives_it() -> None:
    """Dimensions 0 and -1 of a tensor without any, and indices without any."""
    functions = [
        lambda x, i: torch.index_select(x, 0, i) * 2,
        lambda x, i: torch.index_select(x, -1, i[0]) * 2,
        lambda x, i: torch.gather(x, 0, i[0]) * 2,
        lambda x, i: torch.index_fill(x, 0, i, 3.0),
        lambda x, i: torch.index_fill(x[None], -1, i[0], 3.0),
        lambda x, i: x.transpose(0, -1) * 2,
        lambda x, i: torch.movedim(x, 0, -1) * 2,
        lambda x, i: x.unfold(-1, 1, 1) * 2,
    ]
    check(Outputs(functions), [torch.tensor(1.5), ZERO])


def test_a_join_of_nothing_is_nothing() -> None:
    check(Outputs([lambda x, y: torch.cat([x, y.long()]), lambda x, y: torch.cat([x, y])]), [draw(0), draw(0)])


def test_stacks_add_the_dimensions_that_torch_adds() -> None:
    """Scalars, vectors, matrices and more dimensions: hstack joins vectors along their only one, dstack behind."""
    functions: list[Any] = []
    for join in (torch.hstack, torch.vstack, torch.dstack):
        functions += [
            lambda s, v, m, t, join=join: join([s, s * 2]),
            lambda s, v, m, t, join=join: join([v, v * 2, v + 1]),
            lambda s, v, m, t, join=join: join([m, m * 2]),
            lambda s, v, m, t, join=join: join([t, t * 2]),
        ]
    functions += [
        lambda s, v, m, t: torch.vstack([v, t[0].flatten(0, 1)[:2, :5]]),
        lambda s, v, m, t: torch.outer(v, t[0, 0, 0]),
        lambda s, v, m, t: torch.outer(v > 0, v < 1),
        lambda s, v, m, t: torch.flipud(m) + torch.fliplr(m),
    ]
    inputs = [draw(), draw(5), draw(3, 4), draw(2, 3, 4, 6)]
    check(Outputs(functions), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_that_keeps_a_size_stays_in_bounds(dtype: torch.dtype) -> None:
    """(-1, 1) cuts the first element and pads the last: the size is as before, and the last is no element."""
    amounts: list[Any] = [(-1, 1), (1, -1), (-2, 2, 1, -1), (0, 0, -1, 1), (-1, 1, -2, 1), (2, 0), (0, 2), (-1, 0)]
    functions = [lambda x, pads=pads: torch.constant_pad_nd(x, pads, 2.0) for pads in amounts]
    check(Outputs(functions), [draw(2, 3, 4, 4, dtype=dtype)], other=[draw(3, 2, 5, 7, dtype=dtype)])


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_padding_that_crops_and_adds(mode: str) -> None:
    """What is cropped at one end is wrapped around to no place at the other."""
    amounts = [(-1, -1, 1, 2), (-1, 2, 0, 0), (2, -1, 0, -1), (-1, 1, -2, 1)]
    functions = [lambda x, pads=pads: F.pad(x, pads, mode) * 2 for pads in amounts]
    check(Outputs(functions), [draw(2, 3, 5, 4)], library=["aten.pad.default"] if mode == "circular" else [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [None, (1, 1, 1), (2, 3, 5), (3, 2, 2), (None, 2, None)])
def test_adaptive_max_pooling_gives_positions(sizes: Any, dtype: torch.dtype) -> None:
    """Windows of one element, of one size and of several; equal elements: the first wins."""
    wanted = sizes or (None, None, None)
    functions = [
        lambda x: F.adaptive_max_pool3d(x, wanted, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x[0], wanted[1:], return_indices=True),
        lambda x: F.adaptive_max_pool1d(x[0, 0], wanted[2], return_indices=True) if wanted[2] else x + 1,
    ]
    check(Outputs(functions), [whole(-2, 3, 2, 3, 4, 3, 5).to(dtype)])


def test_places_between_doubles_are_doubles() -> None:
    functions = [
        lambda x: F.interpolate(x, size=(5, 9), mode="bilinear"),
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        lambda x: F.interpolate(x, size=(7, 11), mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x[0], size=7, mode="linear"),
        lambda x: F.interpolate(x[None], size=(5, 7, 11), mode="trilinear"),
    ]
    check(Outputs(functions), [draw(2, 4, 6, 8, dtype=torch.float64)])


@pytest.mark.parametrize("pool", [F.max_pool2d, F.adaptive_max_pool2d])
def test_of_several_nans_in_a_window_the_last_is_its_place(pool: Any) -> None:
    x = draw(1, 2, 6, 9)
    x[0, 0, :3, :4] = x[0, 1, 1, 1] = x[0, 1, 1, 2] = torch.nan
    check(Outputs([lambda x: pool(x, 3, return_indices=True)]), [x])
