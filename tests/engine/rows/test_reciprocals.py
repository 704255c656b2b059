"""Half results: divisions by constants are products, unless the quotient's last bit decides about more than itself.
Float results: a row shares one reciprocal, and kernels that divisions slow down approximate them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check

Function = Callable[..., Any]
SMOOTH: dict[str, Function] = {
    "pointwise": lambda x: ((x.float() - 1) / 0.3).sigmoid().to(x.dtype),
    "row": lambda x: (x.float() / 0.7).softmax(-1).to(x.dtype),
    "selected": lambda x: torch.where(x > 0, x.float() / 3, 0.0).to(x.dtype),
}
DECIDING: dict[str, Function] = {
    "floor": lambda x: ((x.float() / 0.3).floor() * 0.3).to(x.dtype),
    "round": lambda x: ((x.float() / 0.3).round() * 0.3).to(x.dtype),
    "compared": lambda x: torch.where(x.float() / 0.3 > 1, x, -x),
    "converted": lambda x: ((x.float() / 0.3).to(torch.int32) * 2).to(x.dtype),
    "index": lambda x: x.gather(-1, ((x.float() / 0.3).long() % x.shape[-1])),
    "by row": lambda x: ((x.float() / x.float().abs().amax(-1, keepdim=True) * 7).round()).to(x.dtype),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SMOOTH)
def test_constants_become_reciprocals(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(9, 130, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, :4] = torch.tensor([float("inf"), float("-inf"), 0.0, float("nan")])
    assert DIVIDED.search(kernels(check(Op(SMOOTH[name]), [x]))) is None


@pytest.mark.parametrize("name", DECIDING)
def test_quotients_that_decide_are_divided(name: str) -> None:
    """Among the inputs are multiples of the divisor, whose quotients a product would round to the other side."""
    x = torch.arange(-600, 600).reshape(8, 150).half() * 0.3
    text = check(Op(DECIDING[name]), [x])
    assert DIVIDED.search(kernels(text)) and "saturated_reciprocal" not in text


@pytest.mark.parametrize("divisor", [1e-39, 1e-38 / 2, 2.0**127 * 1.5, float("inf")])
def test_constants_without_a_plain_reciprocal_divide(divisor: float) -> None:
    text = write(captured(Op(lambda x: (x.float() / divisor).half()), [torch.empty(9, 130).half()])).text
    assert DIVIDED.search(kernels(text))


QUOTIENTS: dict[str, Function] = {
    "divided": lambda x, y: x / y,
    "softsign": lambda x, y: torch.nn.functional.softsign(x) + y,
    "reciprocal": lambda x, y: x.float().reciprocal().to(x.dtype) + y.sign(),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_divisions_of_elements_are_approximate(name: str, dtype: torch.dtype) -> None:
    """Also of numbers at the ends of the range, infinities, zeros and NaN."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(9, 130, generator=generator).to(dtype) for _ in range(2))
    ends = [float("inf"), float("-inf"), 0.0, -0.0, float("nan"), torch.finfo(dtype).max, torch.finfo(dtype).tiny, 1.0]
    x[1, : len(ends) ** 2] = torch.tensor(ends).repeat(len(ends)).to(dtype)
    y[1, : len(ends) ** 2] = torch.tensor(ends).repeat_interleave(len(ends)).to(dtype)
    assert "divide_approx(" in check(Op(QUOTIENTS[name]), [x, y])


@pytest.mark.parametrize("name", QUOTIENTS)
def test_float_results_of_elements_divide(name: str) -> None:
    assert "divide_approx" not in write(captured(Op(QUOTIENTS[name]), [torch.empty(9, 130)] * 2)).text


def test_quotients_of_elements_that_decide_are_divided() -> None:
    x = torch.arange(-600, 600).reshape(8, 150).half() * 0.3
    text = check(Op(lambda x, y: ((x.float() / y.float()).floor() * 0.3).to(x.dtype)), [x, x.flip(0) + 0.5])
    assert "divide_approx" not in text


def test_quotients_of_a_rows_values_are_divided() -> None:
    """They are computed once a row."""
    text = check(
        Op(lambda x: x - (1 / x.abs().float().sum(-1, keepdim=True)).to(x.dtype)), [torch.randn(9, 130).half()]
    )
    assert "divide_approx" not in text


def test_float_results_divide() -> None:
    assert " / 0.3f" in write(captured(Op(lambda x: x / 0.3), [torch.empty(9, 130)])).text


ROWS: dict[str, Function] = {
    "softmax": lambda x, y: (x / y[:, :1]).softmax(-1),
    "floor": lambda x, y: (x / y[:, :1]).floor() + x,
    "columns": lambda x, y: x / (x.square().sum(0, keepdim=True) + y[:1]),
}


@pytest.mark.parametrize("name", ROWS)
def test_float_rows_share_a_reciprocal(name: str) -> None:
    """Also by zero, infinity, a negative, and numbers too small and too large for a plain reciprocal."""
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(70, 130, generator=generator) for _ in range(2))
    x[5, :4] = torch.tensor([float("inf"), float("-inf"), 0.0, float("nan")])
    if name == "softmax":
        y[:7, 0] = torch.tensor([0.0, float("inf"), -0.7, 1e-39, 3e38, float("nan"), -1e-40])
    text = check(Op(ROWS[name]), [x, y])
    assert ("divide_closely(" in text) == (name != "floor")
    chosen = {key: False for key in space(captured(Op(ROWS[name]), [x, y])) if key.startswith("close_quotients:")}
    assert "divide_closely(" not in check(Op(ROWS[name]), [x, y], choices=chosen)


def flows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x / y + y / (x * x + 1) + (x + y) / (y * y + 2) + x / (y.abs() + 3)


def test_many_divisions_of_floats_are_approximate() -> None:
    """Where chosen, of kernels with one for each eight bytes that they move; by default they are rounded."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(9, 130, generator=generator) for _ in range(2)]
    assert "divide_approx(" not in check(Op(flows), inputs)
    (key,) = [key for key in space(captured(Op(flows), inputs)) if key.startswith("approximate_quotients:")]
    assert check(Op(flows), inputs, choices={key: True}).count("divide_approx(") >= 4
    few = Op(lambda x, y: x / y + y)
    assert not any(key.startswith("approximate_quotients:") for key in space(captured(few, inputs)))


DIVIDED = re.compile(r" / (\d[\d.e+-]*f|INFINITY|__int_as_float|[a-z]\w*_max\b)")
"""A division by a float constant, or by a row's maximum."""


def kernels(text: str) -> str:
    """The device code without comments."""
    return "\n".join(line.partition("//")[0] for line in text.partition("def forward")[0].splitlines())
