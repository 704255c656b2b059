"""Whole numbers that a float64 reference rounds to: marked where honest kernels may round to the other side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.task.host.double_precision import float64
from hipwright.task.host.modes.ties import TieMarker

Body = Callable[[torch.Tensor], torch.Tensor]

HALF_WAY = torch.tensor([63.5, -63.5, 0.5, -0.5, 1.5, 126.5, 63.4, -2.3, 127.0], dtype=torch.float64)
NEAR = torch.tensor([True] * 6 + [False] * 3)


def run(body: Body, values: torch.Tensor, *, known: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the reference returns, what it returns without marks) of body(values); known: values are an input."""
    choices = TieMarker("float32", [values] if known else [])
    with torch.no_grad(), float64(choices):
        found = choices.settled(body(values.clone() if not known else values))
    return found, body(values.clone())


BODIES: dict[str, Body] = {
    "int8": lambda q: q.round().clamp(-128, 127).to(torch.int8),
    "in place": lambda q: q.round().clamp_(-128, 127).to(torch.int8),
    "zero point": lambda q: (torch.round(q) + 128).clamp(0, 255).to(torch.uint8),
    "packed": lambda q: (q.round().clamp(-8, 7).to(torch.int32) & 15) | (3 << 4),
    "stacked": lambda q: torch.stack([q.round().to(torch.int32), torch.zeros_like(q).to(torch.int32)])[0],
    "int64": lambda q: q.round().long(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_value_half_way_is_marked(name: str) -> None:
    values = HALF_WAY if name != "packed" else HALF_WAY / 16
    values = torch.where(NEAR, values.round() + 0.5 if name == "packed" else values, values)
    if name == "packed":
        values = values.clamp(-7.5, 6.5)
    found, plain = run(BODIES[name], values)
    near = (values - values.floor() - 0.5).abs() < 1e-9
    assert bool(near.any()) and torch.equal(found != plain, near)


@pytest.mark.parametrize("name", BODIES)
def test_no_honest_neighbour_equals_a_mark(name: str) -> None:
    values = HALF_WAY[:5] if name != "packed" else torch.tensor([1.5, -1.5, 0.5, -0.5, 2.5], dtype=torch.float64)
    found, _ = run(BODIES[name], values)
    for off in (-1e-9, 1e-9):
        assert not bool((found == BODIES[name](values + off)).any())


@pytest.mark.parametrize("by", [3e-7, -3e-7, 1e-3, -1e-3])
def test_rounding_errors_of_float32_alone_are_half_way(by: float) -> None:
    values = torch.full((4,), 63.5, dtype=torch.float64) * (1.0 + by)
    found, plain = run(BODIES["int8"], values)
    assert bool((found != plain).all()) == (abs(by) < 1e-6)


def test_an_input_is_rounded_by_the_rule() -> None:
    found, plain = run(BODIES["int8"], HALF_WAY, known=True)
    assert torch.equal(found, plain)


@pytest.mark.parametrize(
    "body", [lambda q: q.round(), lambda q: q.round() * 0.25, lambda q: q.round().to(torch.int8) * 0.5]
)
def test_no_float_is_marked(body: Body) -> None:
    found, plain = run(body, HALF_WAY)
    assert torch.equal(found, plain.double())


def test_other_operators_in_place_lose_the_mark() -> None:
    found, plain = run(lambda q: q.round().to(torch.int32).mul_(3), HALF_WAY)
    assert torch.equal(found, plain)
