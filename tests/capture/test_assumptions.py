"""What export assumed of sizes stands in the program: equal parts to broadcast, and the task's own branches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hipwright.capture.assumptions import _follows
from hipwright.engine import write
from hipwright.engine.rewrite.specialise import specialise
from tests.engine.harness import captured, check


class Given(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def gated(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.sigmoid(left) * right


def two_pools(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(x, 2, 2) + F.avg_pool1d(x, 3, 2, 1)


def parity(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[1] % 2 == 0 else x * 3


def few(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] <= 100 else x * 3


def not_seven(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] != 7 else x * 3


def first_four(x: torch.Tensor) -> torch.Tensor:
    return (x[:, :4] * 2).sum(1)


def last_three(x: torch.Tensor) -> torch.Tensor:
    return (x[:, -3:] * 2).sum(1)


def a_third(x: torch.Tensor) -> torch.Tensor:
    return x + x.new_ones(int(x.shape[1] * 0.3)).sum()


def rounded_up(x: torch.Tensor) -> torch.Tensor:
    return x * len(range(math.ceil(x.shape[0] / 2.5)))


def pooled_up(x: torch.Tensor) -> torch.Tensor:
    """A window that begins in the padding is left out."""
    return F.max_pool2d(x[:, :, None], (1, 2), (1, 2), (0, 1), ceil_mode=True)


def thirds(x: torch.Tensor) -> Any:
    return [part * 2 for part in torch.tensor_split(x, 3)]


def padded_chunks(x: torch.Tensor) -> torch.Tensor:
    """At capture the padded size is the number of chunks, so that a chunk is one row."""
    return torch.ops.aten._chunk_cat([x, x * 2], 0, 5)


def flat(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] / x.shape[1] < 0.75 else x * 3


@pytest.mark.parametrize(
    ("function", "shape", "wrong", "right"),
    [
        (gated, (5, 8), (5, 3), (5, 6)),  # 2 and 1 would broadcast
        (two_pools, (2, 3, 16), (2, 3, 3), (2, 3, 10)),
        (parity, (4, 8), (4, 7), (3, 6)),
        (few, (4, 8), (101, 2), (99, 2)),
        (not_seven, (4, 8), (7, 2), (6, 2)),
        (first_four, (4, 8), (4, 3), (4, 4)),
        (last_three, (4, 8), (4, 2), (4, 3)),
        (a_third, (4, 32), (4, 34), (3, 30)),
        (rounded_up, (9, 8), (11, 8), (8, 5)),
        (pooled_up, (2, 3, 16), (2, 3, 9), (3, 2, 10)),
        (pooled_up, (2, 3, 9), (2, 3, 16), (3, 2, 7)),
        (thirds, (8, 4), (7, 4), (11, 4)),
        (thirds, (6, 4), (8, 4), (9, 4)),
        (flat, (4, 8), (8, 4), (4, 8)),
        (padded_chunks, (4, 3), (6, 3), (5, 2)),
    ],
)
def test_sizes_off_the_path_of_export_are_refused(
    function: Callable[[torch.Tensor], Any], shape: tuple[int, ...], wrong: tuple[int, ...], right: tuple[int, ...]
) -> None:
    draw = torch.Generator().manual_seed(1)
    model, x = Given(function), torch.randn(shape, generator=draw)
    check(model, [x], other=[torch.randn(right, generator=draw)])
    with pytest.raises(Exception, match="written for these sizes"):
        check(model, [x], other=[torch.randn(wrong, generator=draw)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(x.shape[0], 4, -1).sum(1),
        lambda x: F.pixel_shuffle(x[:, :, None, None].expand(-1, -1, 3, 3), 2),
        lambda x: F.avg_pool1d(x, 3, 2).var(-1),
        lambda x: x.softmax(-1),
        lambda x: F.interpolate(x[:, None, :, None].expand(-1, 3, -1, 5), scale_factor=2),
    ],
)
def test_what_the_operators_ask_themselves_is_not_said_again(function: Callable[[torch.Tensor], Any]) -> None:
    graph = captured(Given(function), [torch.randn(4, 16)])
    assert graph.symbols and not graph.guards


@pytest.mark.parametrize(("shape", "guard"), [((16, 10), "x_0 >= x_1"), ((10, 16), "x_0 < x_1")])
def test_a_branch_of_torchs_own_python_is_a_tasks(shape: tuple[int, ...], guard: str) -> None:
    """A randomised decomposition of a wide matrix is that of its transpose: other values, not only other roundings."""
    graph = captured(Given(lambda x: torch.svd_lowrank(x, q=3)), [torch.randn(*shape)])
    assert graph.guards == (guard,)


def variation(x: torch.Tensor) -> torch.Tensor:
    down, along = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(-2), (x[..., :, 1:] - x[..., :, :-1]).abs().flatten(-2)
    return down.sum(-1) + along.sum(-1)


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_no_condition_divides_by_zero(size: int) -> None:
    """A remainder by a product of sizes that may be zero is asked for behind a test of that product."""
    graph = captured(Given(variation), [torch.randn(2, 3, 20, 20)])
    assert any("%" in guard for guard in graph.guards)
    for guard in graph.guards:
        if not eval(guard, {"min": min, "max": max}, {symbol.name: size for symbol in graph.symbols}):
            break


def test_the_captured_sizes_alone_need_no_condition_on_them() -> None:
    graph = specialise(captured(Given(gated), [torch.randn(5, 8)]))
    assert graph.guards == ("x.shape[0] == 5", "x.shape[1] == 8")
    assert "x_1" not in write(graph).text


def test_a_condition_that_follows_from_the_others() -> None:
    assert _follows("4 * (a // 4) == a", ["a % 4 == 0"])
    assert not _follows("4 * (a // 4) == a", ["a % 2 == 0"])
    assert _follows("a // b == 2", ["a == 2 * b"])
    assert not _follows("1 // (a - 2) == 0", [])  # a division by 0 says nothing good
    assert not _follows("5 * ((a + 4) // 5) == 5", [f"x{k} == 7 * y{k}" for k in range(20)]), (
        "no sample satisfies these"
    )
    assert _follows("a == c", ["a == b", "b == c", *(f"x{k} == 7 * y{k}" for k in range(20))])
