"""Partials of cooperative blocks are combined by a second launch, or by the last block that arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, compare, reference, run

SMALL = {"ROW_BLOCK": 64, "ROW_ITEMS": 2, "COOP_BLOCKS": 16}
WAYS = {"apart": 2, "last": 1}
"""The choice `combine`, and the launches of a kernel."""


def total(x: torch.Tensor) -> Any:
    return x.sum()


def spread(x: torch.Tensor) -> Any:
    """Moments, of which a partial is a structure, and what is computed from them."""
    return x.var() + 1, x.mean()


def largest(x: torch.Tensor) -> Any:
    """Two states, one of which is not of floats."""
    return x.max(), x.argmax()


def by_row(x: torch.Tensor) -> Any:
    return x.square().sum(-1).sqrt()


def by_image(x: torch.Tensor) -> Any:
    """Rows of several runs."""
    return x.reshape(x.shape[0], 2, 3, -1).mean((0, 3))


def programmed(function: Callable[..., Any], way: str, shape: tuple[int, ...]) -> Any:
    graph = captured(Op(function), [torch.empty(shape)])
    found = space(graph)
    assert any(key.startswith("combine:") for key in found), found
    given = {key: way for key in found if key.startswith("combine:")}
    given |= {key: True for key in found if key.startswith("cooperative:")}
    return write(graph, {**SMALL, **given})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [total, spread, largest, by_row, by_image])
def test_partials_are_combined(function: Callable[..., Any], way: str) -> None:
    model, program = Op(function), programmed(function, way, (2, 1 << 17) if function is by_row else (6, 6 << 14))
    assert ("is_last_block(" in program.text) == ("torch.zeros(" in program.text) == (way == "last")
    for length in (6, 1530, 2046, 12_000):
        x = torch.randn(6, length, generator=torch.Generator().manual_seed(length)) * 3 + 1
        expected, native, _ = reference(model, [x])
        compare(run(program, model, [x])[0], expected, native)


@pytest.mark.parametrize(("shape", "launches"), [((40_000,), 2), ((1000, 1000), 2), ((20_000,), 1)])
def test_a_whole_tensor_is_summed_without_counters(shape: tuple[int, ...], launches: int) -> None:
    """By default in two launches, and by one block where there is little."""
    text = write(captured(Op(total), [torch.empty(shape)]), {"exact": False}).text
    plan = text.partition("def forward")[2]
    assert plan.count("_kernel[") == launches and "torch.zeros(" not in plan
