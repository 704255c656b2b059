"""Tensors that a forward makes of numbers: of constants, of its sizes, and of what tensors hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import author
from hipwright.errors import TaskError
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, reference, run


def by_a_count(x: Any) -> Any:
    return x.reshape(torch.prod(torch.as_tensor(tuple(torch.as_tensor(s) for s in x.shape[:2]), dtype=int)), -1) * 2


def by_a_grid(x: Any) -> Any:
    rows, columns = (torch.tensor([[1, 2], [2, 2]]) * torch.tensor([1, 2])).sum(0).tolist()
    return x.view(rows, columns // 2, -1).amax(-1)


def after_a_write(x: Any) -> Any:
    sizes = torch.tensor([2, 3])
    sizes[0].mul_(3)
    return x.flatten()[: int(sizes[0])] + 1


def over_dimensions(x: Any) -> Any:
    """As MONAI's losses sum."""
    axes = torch.arange(1, len(x.shape)).tolist()
    return x.exp().sum(axes) - x.amax(axes)


def after_a_step(x: Any) -> Any:
    places = torch.arange(4)
    places += 1
    return x.flatten()[: int(places[3])] + places.sum()


@pytest.mark.parametrize("forward", [by_a_count, by_a_grid, after_a_write, over_dimensions, after_a_step])
def test_numbers_of_constants_are_known(forward: Callable[..., Any]) -> None:
    model, x = Op(forward), torch.randn(3, 4, 5)
    expected, native, _ = reference(model, [x])
    compare(run(author(captured(model, [x]), {}).program, model, [x])[0], expected, native)


@pytest.mark.parametrize("given", [[2], [2, 3]])
def test_a_number_of_an_argument_is_not_known(given: list[int]) -> None:
    def forward(x: Any) -> Any:
        sizes = torch.tensor(given)
        sizes[0] = x.amax()
        return x[: int(sizes[0])]

    with pytest.raises(TaskError, match=r"line \d+: `.*int\(sizes\[0\]\)"):
        captured(Op(forward), [torch.randn(7)])


def test_places_over_a_size_are_no_constants() -> None:
    graph = captured(Op(lambda x: x + torch.arange(x.shape[0])), [torch.randn(7)])
    assert graph.symbols and any("arange" in node.op for node in graph.nodes)


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_numbers_that_tensors_hold_are_stacked(dtype: torch.dtype | None) -> None:
    model = Op(lambda x, n: torch.tensor([[x.mean(), 2], [n, x.amax() * 3]], dtype=dtype) * 2)
    before = torch.tensor
    graph = captured(model, [torch.randn(3, 4), torch.tensor(5)])
    assert torch.tensor is before and graph.symbols
    inputs = [torch.randn(5, 2), torch.tensor(7)]
    expected, native, _ = reference(model, inputs)
    compare(run(author(graph, {}).program, model, inputs)[0], expected, native)
