"""Operators with several results, of which some are empty, or with one in a list."""

from __future__ import annotations

import pytest
import torch

from tests.engine.harness import Op, check


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("count", [1, 2])
def test_a_list_of_the_librarys_results(count: int) -> None:
    model = Op(lambda *xs: list(torch.meshgrid(*xs[:count], indexing="ij")))
    check(model, [draw(5), draw(3)], library=["aten.meshgrid.indexing"])


@pytest.mark.parametrize("size", [4, 2])
def test_a_split_into_one_part_or_two(size: int) -> None:
    check(Op(lambda x: [part * 2 for part in x.split(size)]), [draw(4, 3)])


def test_statistics_of_a_batch_norm_that_does_not_train_are_empty() -> None:
    model = Op(lambda x, w, b, m, v: torch.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5))
    text = check(model, [draw(3, 5, 4, 4), draw(5), draw(5), draw(5), draw(5).abs() + 0.5])
    assert "// batch_norm" in text, "the kernel is named for the operator"


@pytest.mark.parametrize("columns", [1, 2])
def test_a_list_among_the_librarys_results(columns: int) -> None:
    def model(x: torch.Tensor) -> list[torch.Tensor]:
        counts, edges = torch.histogramdd(x, [3, 4][:columns])
        return [counts + 1, *edges, edges[0] * 2]

    check(Op(model), [draw(6, columns)], library=["aten.histogramdd.default"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_functional_batch_norm_that_does_not_train_keeps_its_statistics(dtype: torch.dtype) -> None:
    """Its statistics have the type of the running ones, whatever the capture says of them."""

    def model(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
        m, v = mean.clone(), var.clone()
        return torch.ops.aten._native_batch_norm_legit(x, w, w, m, v, False, 0.1, 1e-5)[0], m * 2, v

    check(Op(model), [t.to(dtype) for t in (draw(3, 5, 4), draw(5), draw(5), draw(5).abs() + 0.5)])
