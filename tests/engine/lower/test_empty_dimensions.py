"""Operators that are given no dimensions, and operands that are broadcast along the dimension that is reduced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.harness import Op, check

NONE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "any": lambda x: torch.any(x > 0, dim=()),  # of no dimension: every element by itself
    "all": lambda x: torch.all(x > 0, dim=()),
    "flip": lambda x: torch.flip(x, ()) + 1,
    "squeeze": lambda x: x[:, :1].squeeze(()) + 1,
    "amax": lambda x: torch.amax(x, ()),  # of all
    "sum": lambda x: torch.sum(x, ()),
    "std": lambda x: torch.std(x, ()),
}


@pytest.mark.parametrize("name", NONE)
def test_no_dimensions(name: str) -> None:
    check(Op(NONE[name]), [torch.randn(3, 4)])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cosine_similarity_of_broadcast_operands(dim: int) -> None:
    x, y = torch.randn(2, 5, 7), torch.randn(2, 1, 7)
    check(Op(lambda a, b: torch.cosine_similarity(a, b, dim=dim)), [x, y], other=[x[:, :, :4], y[:, :, :4]])
    check(Op(lambda a, b: torch.cosine_similarity(a, b, dim=dim)), [y, x])


def test_a_cosine_of_scalars_is_the_librarys() -> None:
    cosine = Op(lambda a, b: torch.cosine_similarity(a, b, dim=0) + 1)
    check(cosine, [torch.tensor(2.0), torch.tensor(-3.0)], library=["aten.cosine_similarity.default"])


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_the_mean_of_no_values() -> None:
    model = Op(lambda x: torch.var_mean(x, 1))
    check(model, [torch.randn(3, 4)], other=[torch.randn(5, 0)])
    check(model, [torch.randn(3, 0)])
