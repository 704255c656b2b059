"""Numbers of cooperative blocks that fill every multiprocessor evenly are in the search space, and correct; partials
are combined by a second launch, or by the last block that arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from hipwright.engine.layout.planner import MULTIPROCESSORS, even_block_counts
from hipwright.program import parse
from tests.engine.harness import Op, captured, compare, reference, run

COLUMNS, ROWS = Op(lambda x: x.mean(0)), Op(lambda x: x.square().sum(1))


def test_counts_fill_a_device() -> None:
    for groups in (1, 3, 16, 100):
        for size in even_block_counts(groups):
            assert any(0 <= count * each - size * groups < groups for count in MULTIPROCESSORS for each in (4, 8)), (
                groups,
                size,
            )
    assert even_block_counts(5000) == set()


@pytest.mark.parametrize(("model", "shape", "size"), [(COLUMNS, (131072, 2048), 33), (ROWS, (32, 1 << 20), 33)])
def test_offered_counts_give_the_same_values(model: torch.nn.Module, shape: tuple[int, int], size: int) -> None:
    """The program for a large tensor, on a small one: 33 blocks per row, more than there are tiles and fewer."""
    graph = captured(model, [torch.empty(shape, device="meta")])
    assert size in space(graph)["COOP_BLOCKS"].options
    program = write(graph, {"COOP_BLOCKS": size, "exact": False})
    assert parse(program.text).defines(program.knobs)["COOP_BLOCKS"] == size
    torch.manual_seed(0)
    for small in ((3000, 40), (7, 300)) if model is COLUMNS else ((2, 200_000), (3, 5000)):
        x = torch.randn(small)
        exact, native, _ = reference(model, [x])
        got, _ = run(program, model, [x], checked=False)
        compare(got, exact, native)


@pytest.mark.parametrize("threads", [256, 1024])
def test_the_cpu_target_keeps_all_blocks_that_wait_for_one_another(threads: int) -> None:
    """At the most elements of a case that is run as given."""
    model, x = Op(lambda x: torch.sigmoid(x - x.mean())), torch.randn(1000, 2000)
    program = write(captured(model, [x]), {"ROW_BLOCK": threads})
    expected, native, _ = reference(model, [x])
    compare(run(program, model, [x], checked=False)[0], expected, native)


def test_waiting_blocks_keep_their_count() -> None:
    graph = captured(Op(lambda x: x.softmax(-1)), [torch.empty((8, 1 << 20), device="meta")])
    assert all(option & (option - 1) == 0 for option in space(graph)["COOP_BLOCKS"].options)  # type: ignore[operator]


def test_tiny_runs_take_few_blocks() -> None:
    """Ten channels of 3 x 3 are ten tiles of nine elements, but not ten cooperative blocks: these took the cpu target
    20 s.
    """
    model = torch.nn.Sequential(torch.nn.GroupNorm(32, 320), torch.nn.SiLU())
    program = write(captured(model, [torch.empty(16, 320, 128, 128)]))
    assert re.search(
        r"_blocks = .* 64, 16384 // ROW_BLOCK, cdiv\(\w+ \* \w+ \* 10, ROW_BLOCK \* ROW_VEC\)\)", program.text
    )
    x = torch.randn(11, 320, 3, 3, generator=torch.Generator().manual_seed(6))
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)


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


@pytest.mark.parametrize(("shape", "launches"), [((50_000,), 2), ((1000, 1000), 2), ((40_000,), 1)])
def test_a_whole_tensor_is_summed_without_counters(shape: tuple[int, ...], launches: int) -> None:
    """By default in two launches, and by one block where there is little."""
    text = write(captured(Op(total), [torch.empty(shape)]), {"exact": False}).text
    plan = text.partition("def forward")[2]
    assert plan.count("_kernel[") == launches and "torch.zeros(" not in plan
