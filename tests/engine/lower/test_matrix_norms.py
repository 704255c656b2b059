"""Norms of matrices, which are not those of their elements as one vector."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.harness import Op, check

SINGULAR = "aten.linalg_norm.default"


class Norm(torch.nn.Module):
    """torch.linalg.norm plus 1 of a tensor, with the arguments as attributes."""

    def __init__(self, order: float | str | None, dim: tuple[int, ...] | int | None = None, keep: bool = False) -> None:
        super().__init__()
        self.order, self.dim, self.keep = order, dim, keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.norm(x, self.order, self.dim, self.keep) + 1


@pytest.mark.parametrize("order", [1, -1, math.inf, -math.inf, "fro", None])
def test_of_a_matrix(order: float | str | None) -> None:
    check(Norm(order), [torch.randn(5, 3)])
    check(Norm(order, (2, 0), True), [torch.randn(5, 3, 4)])
    check(Norm(order, (-2, -1)), [torch.randn(2, 3, 4)])


@pytest.mark.parametrize("order", [1, 3, math.inf, None])
def test_of_vectors(order: float | None) -> None:
    check(Norm(order), [torch.randn(7)])
    check(Norm(order, 0), [torch.randn(5, 3)])
    check(Norm(order, (1,), True), [torch.randn(5, 3)])


def test_of_all_elements_without_an_order() -> None:
    check(Norm(None), [torch.randn(2, 5, 3)])


@pytest.mark.parametrize(("order", "library"), [(2, SINGULAR), (-2, SINGULAR), ("nuc", "aten.linalg_norm.ord_str")])
def test_singular_values_are_the_librarys(order: float | str, library: str) -> None:
    check(Norm(order), [torch.randn(5, 3)], library=[library])


@pytest.mark.parametrize("shape", [(5, 0), (0, 5)])
def test_of_no_elements(shape: tuple[int, int]) -> None:
    check(Norm(math.inf), [torch.randn(shape)], library=[SINGULAR])


@pytest.mark.parametrize("order", [1, math.inf, "fro"])
def test_the_operator_of_matrices_alone(order: float | str) -> None:
    check(Op(lambda x: torch.linalg.matrix_norm(x, order) + 1), [torch.randn(2, 5, 3)])
    check(Op(lambda x: torch.linalg.matrix_norm(x, order, (0, 2), True) + 1), [torch.randn(2, 5, 3)])
