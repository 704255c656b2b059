"""Reductions and scans down columns of rows that an index selects: loaded in vectors, whatever the index is;
and short runs that read a gathered element each, which are loops of one thread.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def indices(*shape: int, most: int) -> torch.Tensor:
    """Negative ones too."""
    return torch.randint(-most, most, shape, generator=torch.Generator().manual_seed(4))


def mean(table: torch.Tensor, bags: torch.Tensor) -> Any:
    return table[bags].float().mean(1)


def weighted(table: torch.Tensor, bags: torch.Tensor) -> Any:
    picked = table[bags]
    return (picked * torch.sigmoid(bags[..., None].float())).sum(1), picked.amax(1)


def normed(table: torch.Tensor, bags: torch.Tensor) -> Any:
    return torch.softmax(table[bags] + table[bags % 3], 1)


def running(table: torch.Tensor, bags: torch.Tensor) -> Any:
    return table[bags].float().cumsum(1) * 2


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("columns", "length"), [(64, 32), (37, 9), (24, 130)])
@pytest.mark.parametrize("function", [mean, weighted, normed, running], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_values(function: Any, columns: int, length: int, dtype: torch.dtype, wave: int) -> None:
    inputs = [draw(50, columns, dtype=dtype), indices(6, length, most=50)]
    other = [draw(9, columns + 1, dtype=dtype), indices(3, 1, most=9)]
    assert "load_gathered_columns<" in check(Op(function), inputs, choices={"BLOCK": 128}, wave=wave, other=other)


def test_indices_of_columns_but_not_rows() -> None:
    """Indexed along the reduced dimension, along the kept one, along columns (which no vector can serve)."""
    x, i = draw(5, 40, 32), indices(5, most=5)
    assert "load_gathered_columns<" in check(Op(lambda x, i: x[i].sum(1)), [x, i])
    assert "load_gathered_columns<" in check(Op(lambda x, i: x[:, i].sum(1)), [x, indices(30, most=40)])
    assert "load_gathered_columns<" not in check(Op(lambda x, i: x[:, :, i].sum(1)), [x, indices(20, most=32)])


def test_no_rows() -> None:
    check(Op(mean), [draw(50, 32), indices(6, 20, most=50)], other=[draw(50, 32), indices(6, 0, most=50)])


def test_builds() -> None:
    builds(Op(mean), [torch.empty(100000, 128, dtype=torch.bfloat16), torch.zeros(65536, 32, dtype=torch.long)])
    builds(Op(normed), [torch.empty(1000, 256), torch.zeros(512, 64, dtype=torch.long)])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("width", [64, 61])
@pytest.mark.matrix(keep=3)
def test_an_indexed_row_is_loaded_in_vectors(width: int, dtype: torch.dtype, wave: int) -> None:
    """An embedding alone, with something added to it, and under a reduction of its rows."""
    g = torch.Generator().manual_seed(2)
    table, places = (torch.randn(50, width, generator=g).to(dtype) for _ in range(2))
    tokens = torch.randint(0, 50, (3, 40), generator=g)
    embedding = nn.functional.embedding
    for function in (
        lambda t, w, p: embedding(t, w),
        lambda t, w, p: embedding(t, w) + p[: t.shape[1]],
        lambda t, w, p: w[t - 50] * 2,
        lambda t, w, p: nn.functional.layer_norm(embedding(t, w) + p[: t.shape[1]], (w.shape[1],)),
    ):
        made = space(captured(Op(function), [tokens, table, places]))
        rows = {key: "rows" for key, choice in made.items() if key.startswith("map:") and "rows" in choice.options}
        text = check(Op(function), [tokens, table, places], choices=rows, wave=wave)
        assert "x_1_tile = load_" in text, text


@pytest.mark.parametrize("wave", [32, 64])
def test_a_row_that_an_index_selects_once_for_all_rows_is_read_once(wave: int) -> None:
    """Each row of the table is weighted several times, and the weights' dimension is reduced."""

    def mixed(weights: torch.Tensor, table: torch.Tensor, tokens: torch.Tensor) -> Any:
        return (weights[..., None] * table[tokens][:, None]).sum(1)

    check(Op(mixed), [draw(30, 4), draw(9, 64), indices(30, most=9)], wave=wave)


MANY = 1 << 12


def gaps(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two sums of a run's differences to one of its elements."""
    apart = x - x.gather(1, y[:, None])
    return apart.abs().mean(), (apart * 0.5).sum()


CASES = [
    (nn.MultiMarginLoss(), torch.float32),
    (nn.MultiMarginLoss(p=2, reduction="sum"), torch.float32),
    (Op(gaps), torch.float16),
]


@pytest.mark.parametrize(("model", "dtype"), CASES)
def test_a_thread_sums_a_run(model: nn.Module, dtype: torch.dtype) -> None:
    shapes = torch.empty((MANY, 10), dtype=dtype), torch.zeros(MANY, dtype=torch.int64)
    program = write(captured(model, list(shapes)))
    assert "combine_partials_by_block" in program.text
    assert " % x_1" not in program.text  # no element divides its position
    for rows, run_length in ((3000, 10), (1, 3), (517, 32)):
        torch.manual_seed(rows)
        x, y = torch.randn(rows, run_length).to(dtype), torch.randint(0, run_length, (rows,))
        expected, native, _ = reference(model, [x, y])
        compare(run(program, model, [x, y])[0], expected, native)


@pytest.mark.parametrize(
    ("model", "shape"), [(nn.MultiMarginLoss(), (100, 10)), (Op(lambda x, y: F.nll_loss(x, y)), (MANY, 10))]
)
def test_few_runs_and_sums_of_their_own_do_not(model: nn.Module, shape: tuple[int, int]) -> None:
    text = write(captured(model, [torch.empty(shape), torch.zeros(shape[0], dtype=torch.int64)])).text
    assert "for (int v" not in text.replace("for (int vector", "")
