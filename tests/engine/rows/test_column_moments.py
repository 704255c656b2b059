"""Mean and variance of columns from sums of deviations: columns that cost digits, by one block and by several."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, run

ROWS = (1, 2, 9, 64, 257, 1500)
ULP = 2.0**-23


def spread(x: torch.Tensor) -> Any:
    return torch.var_mean(x, 0, correction=0)


def columns(rows: int) -> torch.Tensor:
    """Columns whose first values tell little of the others: sorted ones, far means, outliers at either end, jumps."""
    draw = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 12, generator=draw)
    steps = torch.arange(rows, dtype=torch.float32)
    x[:, 1] += 3000
    x[:, 2] = steps
    x[:, 3] = -steps.square()
    x[0, 4] = 1e4
    x[-1, 5] = -1e4
    x[:, 6] = 0.1
    x[:, 7] *= 1e-8
    x[:, 8] += torch.where(steps < rows // 2, 0.0, 500.0)
    x[:, 9] = 1000 + 0.01 * steps.sin()
    x[: rows // 3, 10] = 0
    x[:, 11] = 2.0 ** (steps % 24)
    return x


def programs(x: torch.Tensor) -> list[Any]:
    """By blocks of their own and by blocks that share columns; few and many columns a thread."""
    graph = captured(Op(spread), [x])
    (name,) = (k.removeprefix("map:") for k in space(graph) if k.startswith("map:"))
    found = []
    for shared in (False, True):
        chosen: dict[str, Any] = {f"map:{name}": "columns", f"cooperative:{name}": shared}
        chosen |= {"COLUMNS": 8, "BLOCK": 64, "COLUMN_VEC": 1 if shared else 4, "ROW_ITEMS": 4 if shared else 8}
        found.append(write(graph, chosen | ({"COOP_BLOCKS": 4} if shared else {})))
    return found


@pytest.mark.parametrize("wave", [32, 64])
def test_digits(wave: int) -> None:
    alone, shared = programs(columns(1500))
    assert "move_pivots<" in alone.text and "combine_column_partials<" in shared.text
    for program in (alone, shared):
        for rows in ROWS:
            x = columns(rows)
            (variance, mean), _ = run(program, Op(spread), [x], wave=wave)
            exact = x.double()
            want, middle = torch.var_mean(exact, 0, correction=0)
            rounding = (ULP * middle).square()  # of a mean far from zero, where few values vary little
            assert ((variance - want).abs() <= 8 * ULP * want + rounding).all(), (rows, (variance - want) / want)
            assert ((mean - middle).abs() <= 4 * ULP * exact.abs().mean(0)).all(), (rows, mean - middle)
            assert (variance >= 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("row", [0, 3, 40, 699])
def test_one_number_that_is_not_finite_spoils_its_column_alone(row: int, bad: float) -> None:
    x = torch.randn(700, 12, generator=torch.Generator().manual_seed(8))
    x[row, 5] = bad
    for program in programs(columns(1500)):
        (variance, mean), _ = run(program, Op(spread), [x])
        assert variance[5].isnan() and not mean[5].isfinite()
        others = [k for k in range(12) if k != 5]
        assert variance[others].isfinite().all() and mean[others].isfinite().all()


def test_running_statistics_of_a_block_s_columns_wait_for_memory_together() -> None:
    """Each thread of those that hold a column's result updates other columns."""
    model = torch.nn.BatchNorm1d(24)
    program = write(captured(model, [torch.empty(16384, 24)]), {"exact": False})
    assert "lane == v % (BLOCK / COLUMNS)" in program.text
    x = torch.randn(900, 24, generator=torch.Generator().manual_seed(9)) * 2 + 7
    _, after = run(program, model, [x])
    torch.nn.BatchNorm1d.forward(model, x)
    for name in ("running_mean", "running_var"):
        assert torch.allclose(after[name], getattr(model, name), rtol=1e-5, atol=1e-6), name
