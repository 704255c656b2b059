"""Pointwise kernels over a tensor of the plan that nobody reads after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import write
from tests.engine.harness import Op, captured, check

LIBRARY = {f"call:{name}": "library" for name in ("mm", "mm_1", "mm_2", "linear", "linear_1", "conv2d", "bmm")}


def matrices(count: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(6, 6) for _ in range(count)]


def plan(function: Callable[..., Any], inputs: list[torch.Tensor], choices: dict[str, Any] | None = None) -> str:
    """The verified plan of a function whose products are the library's."""
    text = check(Op(function), inputs, choices=LIBRARY | (choices or {}), library=["aten.mm.default"])
    return text[text.index("def forward") :]


def test_an_activation_takes_the_place_of_its_product() -> None:
    text = plan(lambda a, b: torch.mm(a, b).sigmoid() * 2, matrices(2))
    assert "torch.empty" not in text and "return mm" in text
    assert "torch.empty" in plan(lambda a, b: torch.mm(a, b).sigmoid() * 2, matrices(2), {"in_place": False})


def test_a_bias_of_every_row_and_wide_accesses() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 640), nn.GELU())
    for mapping in ("rows", "vector", "scalar"):
        text = check(
            model,
            [torch.randn(300, 64)],
            choices=LIBRARY | {"map:gelu_linear_bias": mapping},
            library=["aten.linear.default"],
        )
        assert "return linear" in text


def test_one_of_two_products_is_written_over() -> None:
    text = plan(lambda x, a, b: torch.nn.functional.silu(torch.mm(x, a)) * torch.mm(x, b), matrices(3))
    assert "torch.empty" not in text and "return mm" in text


def test_of_several_results_those_behind_the_last_read_take_a_place() -> None:
    """An element is stored before the next result is worked out, so what that reads must not be lost by then."""

    def products(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.mm(x, a), torch.mm(x, b)

    def apart(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p, q = products(*given)
        return p.sin(), q.cos()

    def both(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p, q = products(*given)
        return p.sin() + q, p - q

    assert "torch.empty" not in plan(apart, matrices(3))
    assert plan(both, matrices(3)).count("torch.empty") == 1
    assert plan(lambda x, a: (lambda p: (p.sin(), p.cos()))(torch.mm(x, a)), matrices(2)).count("torch.empty") == 1


KEPT = {
    "returned too": lambda a, b: (lambda p: (p, p.relu()))(torch.mm(a, b)),
    "read by the library afterwards": lambda a, b: (lambda p: torch.mm(p.relu(), p))(torch.mm(a, b)),
    "read by a view of the library's": lambda a, b: (lambda p: torch.mm(p.relu(), p.t()))(torch.mm(a, b)),
    "a view that is returned": lambda a, b: (lambda p: (p[1:], p.relu()))(torch.mm(a, b)),
    "read from elsewhere": lambda a, b: (lambda p: p + p.roll(1, 0))(torch.mm(a, b)),
    "turned": lambda a, b: (lambda p: (p + p.t()).contiguous())(torch.mm(a, b)),
    "an input": lambda a, b: (a.relu(), torch.mm(a, b)),
    "of another type": lambda a, b: torch.mm(a, b).relu().half(),
    "of another shape": lambda a, b: torch.mm(a, b).relu().view(4, 9),
    "spread": lambda a, b: torch.mm(a[:1], b).relu() + a,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_must_stay_is_not_written_over(name: str) -> None:
    assert "torch.empty" in plan(KEPT[name], matrices(2))


def test_read_by_a_kernel_afterwards() -> None:
    """The product is read twice, the second time behind another product: only the last reader may write over it."""

    def twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = torch.mm(a, b)
        return torch.mm(product.sin(), b).cos() * product

    text = plan(twice, matrices(2))
    assert text.count("torch.empty") == 1  # the sine; the last kernel writes over one of the two products


def test_parameters_and_buffers_are_left_alone() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))
            self.register_buffer("seen", torch.zeros(6, 6))
            self.seen: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)
            return torch.mm(x, self.weight).relu() + self.weight.abs() + self.seen

    torch.manual_seed(0)
    text = check(Counts(), matrices(1), choices=LIBRARY, library=["aten.mm.default"])
    assert "return mm" in text


def test_a_chain_of_layers_holds_one_tensor_each() -> None:
    """Residual layers: what two layers back nobody reads any more takes the sum."""
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = (layer(x) + x).relu()
            return x

    choices = LIBRARY | {f"call:conv2d_{k}": "library" for k in (1, 2)}
    text = check(
        Block(),
        [torch.randn(2, 4, 5, 6)],
        choices=choices,
        library=["aten.conv2d.default"],
        other=[torch.randn(3, 4, 7, 4)],
    )
    assert "torch.empty" not in text


def test_the_choice_is_no_part_of_the_space() -> None:
    from hipwright.engine import space

    graph = captured(Op(lambda a, b: torch.mm(a, b).relu()), matrices(2))
    assert "in_place" not in space(graph)
    assert write(graph, LIBRARY | {"in_place": False}).text != write(graph, LIBRARY).text
