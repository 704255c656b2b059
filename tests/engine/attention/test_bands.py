"""Attention with a mask that the graph makes of positions: the bands that are recognised, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hipwright.engine import author
from hipwright.engine.knobs import SPLIT, Choice
from tests.engine.attention.band_masks import (
    BRAIN,
    HALF,
    WINDOW_CALL,
    Mask,
    apart,
    both_sides,
    causal,
    draw,
    ends_together,
    far,
    filled,
    infinite,
    laid,
    least,
    lower_triangle,
    masked,
    places,
    repeated,
    spread,
    stacked,
    triangle_of_infinities,
    uneven,
    upper_triangle_hidden,
    window,
    window_turned,
)
from tests.engine.harness import Op, captured, check

F = torch.nn.functional
ATTENTION = "scaled_dot_product_attention"
HEAVY = {SPLIT: True, f"call:{ATTENTION}": "library"}


def options_of(mask: Mask, inputs: list[Tensor]) -> Choice | None:
    """What is offered for the mask."""
    return author(captured(masked(mask), inputs), HEAVY).space.get(f"mask:{ATTENTION}")


@pytest.mark.parametrize(
    ("mask", "rows", "keys", "dtype", "expected", "sides"),
    [
        (causal, 9, 9, HALF, "causal", ""),
        (lower_triangle, 9, 9, HALF, "causal", ""),
        (upper_triangle_hidden, 9, 9, BRAIN, "causal", ""),
        (infinite, 9, 9, HALF, "causal", ""),
        (triangle_of_infinities, 9, 9, HALF, "causal", ""),
        (least, 9, 9, BRAIN, "causal", ""),
        (far, 9, 9, HALF, "causal", ""),
        (causal, 9, 9, torch.float32, "causal", ""),
        (window, 9, 9, HALF, "window", "window_size_left=2, window_size_right=0)"),
        (window_turned, 9, 9, BRAIN, "window", "window_size_left=2, window_size_right=0)"),
        (both_sides, 9, 9, HALF, "window", "window_size_left=2, window_size_right=2)"),
        (uneven, 9, 9, HALF, "window", "window_size_left=3, window_size_right=1)"),
        (filled, 9, 9, HALF, "window", "window_size_left=2, window_size_right=0)"),
        (ends_together, 5, 12, HALF, "window", "False, window_size_right=0)"),
    ],
)
def test_bands(mask: Mask, rows: int, keys: int, dtype: torch.dtype, expected: str, sides: str) -> None:
    first, then = (
        stacked(n, dtype=dtype) if rows == keys else apart(n, keys + 3, dtype=dtype) for n in (rows, rows + 4)
    )
    found = options_of(mask, first)
    assert found is not None and found.default == expected and found.options[0] == "tensor"
    text = check(masked(mask), first, other=then, choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    assert "__global__" not in text  # nothing makes the mask
    assert ("None, 0.0, True)" in text) == (expected == "causal")
    assert (WINDOW_CALL in text) == (expected == "window") and sides in text


# ---------------------------------------------------------------- what is none


def of_data(q: Tensor, k: Tensor) -> Tensor:
    return causal(q, k) & (k[:, :, None, :, 0] > 0)


def of_a_length(q: Tensor, k: Tensor) -> Tensor:
    return causal(q, k) & (places(q, k)[1] < 5)


def of_blocks(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return row // 3 == column // 3


def either(q: Tensor, k: Tensor) -> Tensor:
    """A window, and the first keys."""
    row, column = places(q, k)
    return (row - column < 3) | (column < 1)


def outside(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return (row - column).abs() > 2


def strided(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return column <= 2 * row


def weak(q: Tensor, k: Tensor) -> Tensor:
    """Scores may be as large."""
    return torch.where(causal(q, k), 0.0, -10000.0).to(q.dtype)


def least_half(q: Tensor, k: Tensor) -> Tensor:
    return least(q, k)


def biased(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return torch.where(column <= row, 0.5, float("-inf")).to(q.dtype)


@pytest.mark.parametrize("mask", [of_data, of_a_length, of_blocks, either, outside, strided, weak, least_half, biased])
def test_other_masks(mask: Mask) -> None:
    found = options_of(mask, stacked(9))
    assert found is None or set(found.options) == {"tensor", "added"}
    text = check(masked(mask), stacked(9), choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    assert WINDOW_CALL not in text and "0.0, True" not in text


@pytest.mark.parametrize("mask", [causal, least])
def test_the_first_keys_of_more_are_no_window(mask: Mask) -> None:
    """A causal mask begins at the first key: with more keys than queries the kernels' begin elsewhere."""
    inputs = apart(5, 9, BRAIN)
    found = options_of(mask, inputs)
    assert found is None or ("causal" not in found.options and "window" not in found.options)
    check(masked(mask), inputs, choices=HEAVY, library=[f"aten.{ATTENTION}.default"])


def test_rows_that_see_no_key() -> None:
    def ahead(q: Tensor, k: Tensor) -> Tensor:
        row, column = places(q, k)
        return (column > row) & (column < row + 4)

    text = check(masked(ahead), stacked(9), choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    assert WINDOW_CALL not in text  # the kernel's window holds the query's own place


@pytest.mark.parametrize("choice", ["tensor", "added"])
def test_the_other_sides_stay(choice: str) -> None:
    choices = HEAVY | {f"mask:{ATTENTION}": choice}
    text = check(masked(window), stacked(9), choices=choices, library=[f"aten.{ATTENTION}.default"])
    assert WINDOW_CALL not in text and ("-INFINITY" in text) == (choice == "added")


def test_windows_are_for_gpus_where_they_are_measured() -> None:
    made = author(captured(masked(window), stacked(9)), {f"call:{ATTENTION}": "library"})
    assert made.space[f"mask:{ATTENTION}"].default == "tensor" and WINDOW_CALL not in made.program.text


@pytest.mark.parametrize(("size", "dtype"), [(20, HALF), (16, torch.float32)])
def test_sizes_and_dtypes_without_a_kernel(size: int, dtype: torch.dtype) -> None:
    inputs = [torch.empty(2, 12, 9, size, dtype=dtype)]
    found = options_of(window, inputs)
    assert found is None or "window" not in found.options


# ---------------------------------------------------------------- heads that queries share


@pytest.mark.parametrize("mask", [None, window, of_data])
@pytest.mark.parametrize("wide", [repeated, spread, laid])
def test_shared_heads(wide: Callable[[Tensor, int], Tensor], mask: Mask | None) -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.split((6, 2, 2), dim=1)
        keys, values = (wide(x, 3) for x in (k, v))
        return F.scaled_dot_product_attention(q, keys, values, mask(q, keys) if mask else None, scale=0.3)

    first, then = stacked(9, (6, 2)), stacked(13, (6, 2))
    text = check(Op(function), first, other=then, choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    shared = wide is not laid and mask is not of_data
    assert ("enable_gqa=True" in text) == (shared and mask is None)
    assert ("__global__" not in text) == shared and (WINDOW_CALL in text) == (mask is window)
    found = author(captured(Op(function), first), HEAVY).space.get(f"heads:{ATTENTION}")
    assert (found is None) == (wide is laid)
    if found is not None:
        other = "repeated" if found.default == "shared" else "shared"
        check(Op(function), first, choices=HEAVY | {f"heads:{ATTENTION}": other}, library=[f"aten.{ATTENTION}.default"])


def test_heads_behind_positions_are_turned_once() -> None:
    """A projection's heads and the merge of the result's stay views."""

    def function(x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (4, 16)).transpose(1, 2) for one in x.split(64, dim=-1))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=window(q, k))
        return out.transpose(1, 2).flatten(2) * 2

    inputs = [draw(2, 9, 192)]
    text = check(Op(function), inputs, choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    assert WINDOW_CALL in text and text.count("__global__") == 1 and "transpose(1, 2).contiguous()" not in text


def test_a_result_lies_as_its_queries_do() -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.tanh().split(4, dim=1)
        return F.scaled_dot_product_attention(q * 2, k, v, attn_mask=window(q, k)) + q

    text = check(Op(function), stacked(9), other=stacked(13), choices=HEAVY, library=[f"aten.{ATTENTION}.default"])
    assert "_rows.transpose(1, 2).contiguous()" in text and "_rows = attention_rows.contiguous()" not in text


# ---------------------------------------------------------------- masks that stay


def for_all_heads(q: Tensor, k: Tensor) -> Tensor:
    """Which keys of a sequence there are, expanded for all heads and queries, as of padded texts."""
    there = k[:, 0, :, 0] > 0
    return there[:, None, None, :].expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2]) & causal(q, k)


@pytest.mark.parametrize("choice", ["tensor", "added"])
def test_a_mask_for_all_heads_is_stored_once(choice: str) -> None:
    choices = HEAVY | {f"mask:{ATTENTION}": choice}
    text = check(masked(for_all_heads), stacked(9), choices=choices, library=[f"aten.{ATTENTION}.default"])
    assert "torch.empty((x_0_0, 1, x_0_2, x_0_2)" in text


@pytest.mark.parametrize("choice", ["tensor", "added"])
def test_an_expanded_input_is_no_copy(choice: str) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        wide = mask[:, None].expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=wide)

    inputs = [*apart(5, 9), draw(2, 5, 9) > -1]
    choices = HEAVY | {f"mask:{ATTENTION}": choice}
    text = check(Op(function), inputs, choices=choices, library=[f"aten.{ATTENTION}.default"])
    assert text.count("__global__") == (choice == "added") and "x_0_1, x_0_2, x_1_2)" not in text


def test_one_mask_serves_several_layers() -> None:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.split(4, dim=1)
        mask = of_data(q, k)
        first = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(first, k, v, attn_mask=mask)

    choices = HEAVY | {f"call:{ATTENTION}_1": "library"}
    text = check(Op(function), stacked(9), choices=choices, library=[f"aten.{ATTENTION}.default"] * 2)
    assert text.count("__global__") == 1
