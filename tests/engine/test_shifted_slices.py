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
    assert SINGLE in text(heat, 20, 130, 514)
    assert SINGLE not in text(lambda u: u[:, 1:].sum(1), 4096, 1025)


def test_builds() -> None:
    builds(Op(heat), [torch.empty(130, 258, 514)])


def laplace(u: torch.Tensor) -> Any:
    c = u[..., 1:-1, 1:-1]
    return c + 0.2 * (u[..., :-2, 1:-1] + u[..., 2:, 1:-1] + u[..., 1:-1, :-2] + u[..., 1:-1, 2:] - 4.0 * c)


def sobel(u: torch.Tensor) -> Any:
    i = u.float()
    d = i[:, 2:] - i[:, :-2]
    return (d[..., :-2] + 2 * d[..., 1:-1] + d[..., 2:] + i[:, 1:-1, 2:]).half()


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("function", "shape", "other"),
    [
        (laplace, (3, 10, 70), (2, 9, 69)),  # odd lengths: element by element
        (laplace, (12, 34), (5, 300)),  # no plane
        (sobel, (2, 11, 36), (1, 4, 3)),
        (heat, (4, 7, 40), (3, 3, 3)),
    ],
)
def test_rows_that_slide(function: Any, shape: tuple[int, ...], other: tuple[int, ...], wave: int) -> None:
    dtype = torch.float16 if function is sobel else torch.float32
    x, y = (torch.randn(s, generator=torch.Generator().manual_seed(2)).to(dtype) for s in (shape, other))
    names = [k for k in space(captured(Op(function), [x])) if k.startswith("map:")]
    text = check(Op(function), [x], choices=dict.fromkeys(names, "sliding"), wave=wave, other=[y])
    assert "load_span<" in text


def test_large_stencils_slide() -> None:
    """A thread of four rows reads six, each once."""
    assert text(laplace, 64, 1024, 1024).count("= load_span<") == 6
    builds(Op(laplace), [torch.empty(8, 1024, 1024)])
    builds(Op(sobel), [torch.empty(8, 1026, 1022).half()])
