"""Neighbours read with a stride lie in whole vectors: interleaved gates, codes in pairs, parts of complex numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check
from tests.engine.template_builds import program_builds

F = torch.nn.functional


def gated(x: torch.Tensor) -> Any:
    """Gates and values in turn."""
    return F.silu(x[..., ::2].clamp(max=2.0)) * (x[..., 1::2] + 1)


def packed(x: torch.Tensor) -> Any:
    codes = (x.float().abs() * 2).clamp(max=15.0).int()
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)


def squared(x: torch.Tensor) -> Any:
    """A flat result from pairs, as the square of complex numbers."""
    parts = x.flatten().unflatten(0, (-1, 2))
    return parts[:, 0] ** 2 - parts[:, 1] ** 2


def quarters(x: torch.Tensor) -> Any:
    return x[:, ::4] + x[:, 2::4] * x[:, 3::4]


def one_of_four(x: torch.Tensor) -> Any:
    """Most of each vector would be read for nothing."""
    return x[:, ::4] * 2


FUNCTIONS = {f.__name__: f for f in (gated, packed, squared, quarters)}


def by_vectors(name: str, x: torch.Tensor) -> dict[str, Any]:
    names = [k for k in space(captured(Op(FUNCTIONS[name]), [x])) if k.startswith("map:")]
    return {**dict.fromkeys(names, "vector"), "BLOCK": 64}


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(width)).to(dtype)


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("width", "other"), [(64, 96), (72, 20), (1024, 4)])
def test_values(name: str, dtype: torch.dtype, width: int, other: int) -> None:
    """Rows that are whole vectors and others; other sizes than the captured."""
    x = drawn(5, width, dtype)
    check(Op(FUNCTIONS[name]), [x], choices=by_vectors(name, x), other=[drawn(3, other, dtype)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vectors_hold_what_lies_between(name: str) -> None:
    x = drawn(64, 1024, torch.float32)
    program = write(captured(Op(FUNCTIONS[name]), [x]), by_vectors(name, x))
    whole = program.text.split("store_whole_vectors<")[0]
    assert "load_vector<" in whole and "_vectors[k / VEC].v[k % VEC * " in whole
    program_builds(program, lambda target: 2)


def test_a_quarter_of_the_elements_is_read_alone() -> None:
    x = drawn(64, 1024, torch.float32)
    assert "load_vector<" not in write(captured(Op(one_of_four), [x])).text


def test_rows_beside_other_columns() -> None:
    """Pairs within a part of longer rows: vectors only where rows begin at them."""

    def inner(x: torch.Tensor) -> Any:
        return x[:, 8:40:2] * x[:, 9:40:2]

    x = drawn(6, 48, torch.float16)
    names = [k for k in space(captured(Op(inner), [x])) if k.startswith("map:")]
    check(
        Op(inner),
        [x],
        choices={**dict.fromkeys(names, "vector"), "BLOCK": 64, "VEC": 4},
        other=[drawn(4, 45, torch.float16)],
    )
