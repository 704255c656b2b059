"""Sums of linear layers as one product: values, what is read in place, the error, what is refused, the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hipwright.engine import author, space
from hipwright.engine.knobs import SPLIT
from hipwright.engine.rewrite import summed_products
from tests.engine.capturing import captured
from tests.engine.harness import check, run
from tests.engine.template_builds import program_builds

HALF, FULL = torch.float16, torch.float32


def drawn(*shape: int, dtype: torch.dtype = FULL) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class Pair(nn.Module):
    """Two linear layers, and a function of them and two inputs."""

    def __init__(
        self,
        function: Callable[..., Any],
        terms: tuple[int, int] = (20, 13),
        *,
        bias: tuple[bool, bool] = (True, False),
        dtype: torch.dtype = FULL,
        width: int = 24,
    ) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.function = function
        self.first, self.second = (nn.Linear(k, width, bias=b, dtype=dtype) for k, b in zip(terms, bias, strict=True))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(self.first, self.second, x, y)


def added(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(first(x) + second(y))


@pytest.mark.parametrize("bias", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("dtype", [FULL, HALF, torch.bfloat16])
def test_values(bias: tuple[bool, bool], dtype: torch.dtype) -> None:
    """In one product, at other numbers of rows too."""
    cases = [[drawn(*rows, k, dtype=dtype) for k in (20, 13)] for rows in ((3, 5), (1, 4))]
    model = Pair(added, bias=bias, dtype=dtype)
    (key,) = [k for k in space(captured(model, cases[0])) if k.startswith("joined:")]
    for like in ("gemm", "library"):
        chosen = {key: True, key.replace("joined", "call"): like}
        text = check(model, cases[0], choices=chosen, other=cases[1], library=["aten.linear.default"])
        assert text.count("F.linear(") == (like == "library")


def three(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return first(x) + second(y) + F.linear(x.sin(), first.weight)


def weights_that_are_computed(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.linear(x, first.weight * x.mean()) + F.linear(y, second.weight.tanh())


@pytest.mark.parametrize("function", [three, weights_that_are_computed])
def test_other_forms(function: Callable[..., Any]) -> None:
    model, inputs = Pair(function), [drawn(9, 20), drawn(9, 13)]
    keys = [k for k in space(captured(model, inputs)) if k.startswith("joined:")]
    text = check(model, inputs, choices=dict.fromkeys(keys, True), library=["aten.linear.default"])
    assert keys and "F.linear" not in text


def test_operands_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GraphSAGE layer: rows that are gathered, and means of gathered rows, without a copy of either. The weights are
    joined in `prepare`; bias and ReLU are the product's epilogue.
    """
    monkeypatch.setattr(summed_products, "LEAST_OPERATIONS", 1e6)

    def layer(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(first(x[y[:, 0]]) + second(x[y].mean(dim=1)))

    model = Pair(layer, (100, 100), width=128)
    inputs = [drawn(300, 100), torch.randint(0, 300, (256, 5), generator=torch.Generator().manual_seed(1))]
    (key,) = [k for k in space(captured(model, inputs)) if k.startswith("joined:")]
    text = check(model, inputs, choices={SPLIT: True, key.replace("joined", "call"): "split"}, wave=32)
    prepared, forward = text[text.index("def prepare") :].split("def forward")
    assert "self.first.weight, self.second.weight" in prepared
    assert forward.count("torch.empty") == 4, "means, parts, their exponents, the result"
    assert "F.linear" not in text
    off = author(captured(model, inputs), {SPLIT: True, key: False}).program.text
    assert "self.first.weight, self.second.weight" not in off


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e5])
def test_the_error_is_that_of_float32(scale: float) -> None:
    """Operands of very different sizes share an exponent for each row: the error is at most twice that of float32."""
    model = Pair(lambda first, second, x, y: first(x) + second(y), (100, 100), bias=(False, False), width=128)
    inputs = [drawn(130, 100), drawn(130, 100) * scale]
    with torch.no_grad():
        model.second.weight /= scale
    graph = captured(model, inputs)
    (key,) = [k for k in space(graph) if k.startswith("joined:")]
    program = author(graph, {key: True, key.replace("joined", "call"): "split"}).program
    assert "SplitTile" in program.text
    got, _ = run(program, model, inputs, wave=32, side="nvidia")
    with torch.no_grad():
        x, y, a, b = (t.double() for t in (*inputs, model.first.weight, model.second.weight))
        exact, size = x @ a.T + y @ b.T, (x.abs() @ a.T.abs() + y.abs() @ b.T.abs())
        native = (((model(*inputs)) - exact).abs() / size).max()
    assert ((got - exact).abs() / size).max() <= max(2 * native, 2.0**-22)


REFUSED: list[Callable[..., Any]] = [
    lambda first, second, x, y: first(x) - second(y),
    lambda first, second, x, y: torch.add(first(x), second(y), alpha=2),
    lambda first, second, x, y: first(x) + second(y[:1]),  # broadcast
    lambda first, second, x, y: (made := first(x)) + made,
    lambda first, second, x, y: ((made := first(x)) + second(y), made),  # it is returned
    lambda first, second, x, y: ((made := first(x)) + second(y)) * made.sum(),
    lambda first, second, x, y: first(x) + torch.relu(second(y)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_not_joined(number: int) -> None:
    graph = captured(Pair(REFUSED[number]), [drawn(9, 20), drawn(9, 13)])
    assert not [key for key in space(graph) if key.startswith("joined:")]


def steps(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    for t in range(3):
        y = torch.tanh(first(x[:, t]) + second(y))
    return y


DEFAULTS = [
    (Pair(added, (100, 100), width=256), (16384,), True),
    (Pair(added, (100, 100), width=256), (64,), False),  # few rows
    (Pair(added, (20, 13), width=256), (65536,), False),  # few terms
    (Pair(added, (100, 100), width=256, dtype=HALF), (16384,), False),  # the library would read a copy
    (Pair(steps, (100, 256), width=256), (8192,), False),  # steps of a loop
]


@pytest.mark.parametrize("number", range(len(DEFAULTS)))
def test_default_rule(number: int) -> None:
    model, rows, default = DEFAULTS[number]
    dtype, terms = model.first.weight.dtype, [model.first.in_features, model.second.in_features]
    first = (*rows, 3, terms[0]) if model.function is steps else (*rows, terms[0])
    graph = captured(model, [torch.empty(first, dtype=dtype), torch.empty(*rows, terms[1], dtype=dtype)])
    found = {k: c.default for k, c in author(graph, {SPLIT: True}).space.items() if k.startswith("joined:")}
    assert list(found.values()) == [default] * len(found)
    assert found or model.function is steps
    assert not any(c.default for k, c in author(graph).space.items() if k.startswith("joined:"))


def test_it_builds_without_scratch() -> None:
    model = Pair(added, (100, 100), width=256)
    graph = captured(model, [torch.empty(16384, 100), torch.empty(16384, 100)])
    program = author(graph, {SPLIT: True}).program
    assert "SplitTile" in program.text
    program_builds(program, lambda target: 1)
