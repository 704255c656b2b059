"""Stencils written with shifted slices: where most packs would lie off their borders, neighbours are read singly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine.write import space, write
from tests.engine.harness import Op, captured, check
from tests.engine.template_builds import builds

SINGLE = "load_packs<ROW_ITEMS, 1>"


def heat(u: torch.Tensor) -> Any:
    c = u[1:-1, 1:-1, 1:-1]
    x = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1]
    y = u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
    return c + 0.1 * (x + y + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6.0 * c)


def blurred(u: torch.Tensor) -> Any:
    return u[:, :-4] + u[:, 1:-3] + u[:, 2:-2] + u[:, 3:-1] * u[:, 4:]


def apart(u: torch.Tensor) -> Any:
    return u[:, :-4] + u[:, 1:-3] * u[:, 4:]


def text(function: Any, *shape: int) -> str:
    return write(captured(Op(function), [torch.empty(*shape)])).text


@pytest.mark.parametrize("wave", [32, 64])
def test_values(wave: int) -> None:
    u = torch.randn(5, 9, 262, generator=torch.Generator().manual_seed(1))
    for function, x, other in ((heat, u, u[:4, :5, :23]), (blurred, u[0].half(), u[1, :, :100].half())):
        names = [k for k in space(captured(Op(function), [x])) if k.startswith("map:")]
        choices = dict.fromkeys(names, "rows")
        assert SINGLE in check(Op(function), [x], choices=choices, wave=wave, other=[other.contiguous()])


def test_packs_where_they_mostly_fit() -> None:
    assert SINGLE not in text(apart, 4096, 1028)
    assert SINGLE not in text(blurred, 4096, 1028)  # half of the packs lie on their borders
    assert SINGLE in text(heat, 40, 258, 514)
    assert SINGLE not in text(lambda u: u[:, 1:].sum(1), 4096, 1025)


def test_builds() -> None:
    builds(Op(heat), [torch.empty(130, 258, 514)])
