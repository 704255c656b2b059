"""Euclidean distances between rows as a product, where PyTorch computes them so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space
from tests.engine.capturing import captured
from tests.engine.harness import Op, check

SHAPES = [
    ((40, 16), (30, 16), ((33, 16), (50, 16))),
    ((2, 3, 40, 9), (5, 9), None),
    ((1, 28, 32), (3, 26, 32), None),
]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("first", "second", "other"), SHAPES)
def test_values_of_distances(first: tuple[int, ...], second: tuple[int, ...], other: Any) -> None:
    others = None if other is None else [drawn(*shape) for shape in other]
    text = check(Op(torch.cdist), [drawn(*first), drawn(*second)], other=others)
    assert "cdist(" not in text


def test_equal_rows_have_small_distances_and_no_nan() -> None:
    x = drawn(32, 16)
    check(Op(lambda a, b: torch.cdist(a, b).square()), [x, x.clone()])


def test_halves_are_squared_in_float32() -> None:
    def written(x: Any, y: Any) -> Any:
        return torch.cdist(x, y)

    given = [torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((1000, 256), (8192, 256))]
    found = space(captured(Op(written), given))
    assert found["distances:cdist"].default and [key for key in found if key.startswith("call:")]


@pytest.mark.parametrize(
    ("rows", "how"),
    [(25, {}), (64, {"p": 1.0}), (64, {"compute_mode": "donot_use_mm_for_euclid_dist"})],
)
def test_what_pytorch_subtracts_stays(rows: int, how: dict[str, Any]) -> None:
    found = space(captured(Op(lambda x, y: torch.cdist(x, y, **how)), [drawn(rows, 8), drawn(25, 8)]))
    assert not any(key.startswith("distances:") for key in found)


def test_a_product_that_is_asked_for() -> None:
    def asked(x: Any, y: Any) -> Any:
        return torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist")

    assert space(captured(Op(asked), [drawn(10, 8), drawn(12, 8)]))["distances:cdist"].default
