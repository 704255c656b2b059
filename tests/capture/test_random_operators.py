"""Which captured operators draw random numbers, and the layouts that their order depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.capture.graph import Graph
from hipwright.capture.random_operators import draws_numbers
from tests.engine.capturing import captured
from tests.engine.harness import Op

X = torch.randn(4, 6)


def graph(function: Callable[..., Any], *inputs: torch.Tensor) -> Graph:
    return captured(Op(function), list(inputs) or [X])


def layouts(found: Graph) -> list[str]:
    return [guard for guard in found.guards if "stride(" in guard or "is_contiguous" in guard]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.3),
        lambda x: x + torch.rand(6),
        lambda x: torch.randn_like(x) * x,
        lambda x: x.bernoulli(0.5),
        lambda x: F.rrelu(x, 0.1, 0.2, True),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.1),
        lambda x: torch.multinomial(x.softmax(-1), 2),
        lambda x: x[:, torch.randperm(6)],
    ],
)
def test_draws_are_found(function: Callable[..., Any]) -> None:
    assert sum(map(draws_numbers, graph(function).nodes)) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.3, False) + 1,
        lambda x: F.dropout(x, 0.0) + 1,
        lambda x: F.rrelu(x, 0.1, 0.2, False),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: F.dropout(x, 1.0) + x,
    ],
)
def test_what_is_switched_off_draws_nothing(function: Callable[..., Any]) -> None:
    assert not any(map(draws_numbers, graph(function).nodes))


def test_the_layout_of_what_is_drawn_for_is_guarded() -> None:
    assert layouts(graph(lambda x: F.dropout(x * 2, 0.3))) == ["x_0.is_contiguous()"]
    turned = graph(lambda x: F.dropout(x * 2, 0.3), torch.randn(6, 4).t())
    assert [guard.split(" ==")[0] for guard in layouts(turned)] == ["x_0.stride(0)", "x_0.stride(1)"]


def test_no_layout_matters_where_the_form_is_given() -> None:
    for function in (
        lambda x: x + torch.rand(x.shape),
        lambda x: F.dropout(x @ torch.ones(6, 3), 0.3),
        lambda x: x * x.new_empty(x.shape[0], 1).bernoulli_(0.5),
    ):
        assert not layouts(graph(function))
