"""Covariances: torch asks a tensor whether their degrees of freedom are positive; a capture takes them as defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import author
from tests.engine.capturing import captured
from tests.engine.harness import Op, check, run

FORMS: list[Callable[..., Any]] = [
    lambda x, count, weight: x.cov(),
    lambda x, count, weight: torch.cov(x, correction=0),
    lambda x, count, weight: torch.cov(x, correction=2, fweights=count),
    lambda x, count, weight: torch.cov(x, correction=0, aweights=weight),
    lambda x, count, weight: torch.cov(x, correction=2, aweights=weight),
    lambda x, count, weight: torch.cov(x, fweights=count, aweights=weight),
    lambda x, count, weight: torch.cov(x[0]),
    lambda x, count, weight: torch.cov(x.to(torch.int64)),
    lambda x, count, weight: torch.corrcoef(x),
    lambda x, count, weight: x[1].corrcoef(),
]


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_is_captured_and_written_as_kernels(number: int) -> None:
    def inputs(rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.randn(rows, columns) * 4, torch.arange(columns) % 3, torch.rand(columns) + 0.1]

    check(Op(FORMS[number]), inputs(3, 7), other=inputs(5, 4))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_of_no_degrees_of_freedom() -> None:
    check(Op(lambda x: torch.cov(x, correction=9)), [torch.randn(3, 4)], other=[torch.randn(3, 12)])


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("shape", [(), (1,), (0,), (5, 0), (5, 1), (1, 1), (1, 6)])
def test_of_few_observations(shape: tuple[int, ...]) -> None:
    """Sizes that are constants: 64-bit arithmetic on them is what a function template takes."""
    check(Op(torch.cov), [torch.randn(shape)])


def test_of_complex_numbers() -> None:
    model, inputs = Op(lambda x: torch.view_as_real(torch.corrcoef(x))), [torch.randn(3, 5, dtype=torch.complex64)]
    found, _ = run(author(captured(model, inputs)).program, model, inputs)
    torch.testing.assert_close(found, model(*inputs))
