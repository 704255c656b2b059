"""Embedding bags, wide gathers and sums by index: values over modes, dtypes and odd widths; AMD builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space
from tests.engine.harness import Op, captured, check, kernels_in
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(4))


OFFSETS = torch.tensor([0, 4, 4, 9, 20])


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("columns", [8, 7])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str, columns: int) -> None:
    model = Op(lambda i, o, w: torch.relu(F.embedding_bag(i, w, o, mode=mode)))
    text = check(model, [whole(11, 23), OFFSETS, draw(11, columns)])
    assert kernels_in(text) == 1
    assert f"{1 if columns == 7 else 4} columns a thread" in text


def test_embedding_bag_options() -> None:
    check(
        Op(lambda i, o, w, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, include_last_offset=True)),
        [whole(11, 20), OFFSETS, draw(11, 8, dtype=torch.float16), draw(20, dtype=torch.float16)],
    )


@pytest.mark.parametrize("padding", [3, 0, -1, -5])
def test_a_row_of_padding_is_in_no_bag(padding: int) -> None:
    model = Op(lambda i, o, w: F.embedding_bag(i, w, o, mode="mean", padding_idx=padding))
    assert "continue" in check(model, [whole(5, 20), OFFSETS, draw(5, 4)])


@pytest.mark.parametrize("columns", [16, 6, 5])
def test_wide_rows(columns: int) -> None:
    model = Op(lambda i, w, b: F.embedding(i, w) * 2 + b)
    inputs = [whole(9, 3, 5), draw(9, columns), draw(columns)]
    (key,) = [k for k in space(captured(model, inputs)) if k.startswith("call:") and k.count(":") == 1]
    text = check(model, inputs, choices={key: "rows", f"{key}:width": 4})
    assert "4 columns a thread" in text or columns == 5


SUMS: list[Callable[..., Any]] = [
    lambda x, i, s: x.index_add(0, i, s),
    lambda x, i, s: x.index_add(0, i, s, alpha=2),
    lambda x, i, s: x.index_put((i,), s, accumulate=True),
    lambda x, i, s: x.t().index_add(1, i, s.t() * 2),
    lambda x, i, s: (x * 2).scatter_add(0, i[:, None].expand(-1, 3), s),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.float64])
@pytest.mark.parametrize("which", range(len(SUMS)))
def test_sums(which: int, dtype: torch.dtype) -> None:
    x, source = (draw(6, 4) * 9).to(dtype), (draw(31, 4, dtype=torch.float64) * 5).to(dtype)
    text = check(Op(SUMS[which]), [x, whole(6, 31), source])
    assert kernels_in(text) == (3 if dtype == torch.float16 else 2)


def test_builds() -> None:
    model = Op(lambda i, o, w, s: (F.embedding_bag(i, w, o), torch.zeros(64, 128).index_add(0, i, s)))
    builds(model, [whole(50000, 4096), torch.arange(0, 4096, 8), torch.empty(50000, 128), torch.empty(4096, 128)])
