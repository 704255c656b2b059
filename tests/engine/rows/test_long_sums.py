"""Sums of very many equal terms: every addition rounds alike, so one running float would lose digits (Higham, 4.2)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, run

LONG = 600_000
ONE_BLOCK = "cooperative:"


def _alone(model: torch.nn.Module, x: torch.Tensor) -> Any:
    """The program in which one block sums each row, so that its threads add as many values as those of huge rows."""
    graph = captured(model, [x])
    return write(graph, {key: False for key in space(graph) if key.startswith(ONE_BLOCK)})


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float(((got.double() - want) / want).abs().max())


def _squares_by_channel(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum((0, 2))


CASES = [
    pytest.param((LONG,), lambda x: x.sum(), id="all"),
    pytest.param((2, LONG), lambda x: x.mean(1), id="rows"),
    pytest.param((2, LONG + 3), lambda x: x.sum(1), id="unaligned_rows"),
    pytest.param((40_000, 24), lambda x: x.sum(0), id="columns"),
    pytest.param((40_000, 17), lambda x: x.sum(0), id="odd_columns"),
    pytest.param((3, 2, LONG // 2), _squares_by_channel, id="runs"),
    pytest.param((2, LONG), lambda x: (x - x.sum(1, keepdim=True)).sum(1), id="two_passes"),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("shape", "function"), CASES)
def test_equal_terms(shape: tuple[int, ...], function: Any) -> None:
    x, model = torch.full(shape, 0.1), Op(function)
    program = _alone(model, x)
    assert "double" in program.text
    got, _ = run(program, model, [x])
    assert _error(got, function(x.double())) <= 1e-6, "one running float loses 1e-5 of it"


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_infinity_stays(bad: float) -> None:
    x, model = torch.ones(LONG), Op(lambda x: x.sum())
    x[LONG // 3] = bad
    got, _ = run(_alone(model, x), model, [x])
    assert torch.equal(got, torch.tensor(bad)) or (got.isnan() and bad != bad)


def test_a_mean_of_long_rows_centres_them() -> None:
    """A norm over 2^20 elements a row is as exact as one over few: moments of tiles are combined (Chan et al. 1983)."""
    x = torch.randn(1, 1 << 20, generator=torch.Generator().manual_seed(3)) + 50
    model = Op(lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]))
    got, _ = run(_alone(model, x), model, [x])
    want = torch.nn.functional.layer_norm(x.double(), x.shape[1:])
    assert float((got.double() - want).abs().max()) <= 3e-6


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("dim", [0, 1], ids=["columns", "rows"])
@pytest.mark.parametrize("items", [1, 16])
def test_squares_of_small_deviations_are_not_lost(dim: int, items: int) -> None:
    """Nine zeros of ten lie a hundredth of a deviation from the mean: their squares round to nothing in a long sum."""
    draw = torch.Generator().manual_seed(5)
    x = torch.randn((LONG, 2) if dim == 0 else (2, LONG), generator=draw)
    x = torch.where(torch.rand(x.shape, generator=draw) < 0.9, 0.0, x + 0.03)
    model = Op(lambda x: torch.var(x, dim))
    program = _alone(model, x)
    chosen = {"ROW_BLOCK": 64, "ROW_ITEMS": items, "ROW_VEC": 1}
    got, _ = run(replace(program, knobs=chosen), model, [x])
    assert _error(got, torch.var(x.double(), dim)) <= 1e-6


@pytest.mark.parametrize("shape", [(64, 4096), (1 << 14,), (4096, 64)])
def test_other_sums_are_written_as_before(shape: tuple[int, ...]) -> None:
    x, model = torch.ones(shape), Op(lambda x: x.sum(0))
    assert "double" not in write(captured(model, [x]), {}).text
