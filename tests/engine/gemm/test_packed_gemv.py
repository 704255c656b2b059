"""Products with few rows of packed weights: several numbers a byte, unpacked where the product reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hipwright.engine import explain
from tests.engine.harness import Op, captured, check
from tests.engine.template_builds import builds

CHOICES = {"call:matmul": "gemv", "call:linear": "gemv"}


def nibbles(packed: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    """Two 4-bit numbers a byte, the lower first, and a scale for each group."""
    pair = torch.stack([packed & 15, packed >> 4], dim=-1).to(x.dtype) - 8.0
    groups = pair.reshape(packed.shape[0], scale.shape[1], -1) * scale[:, :, None]
    return groups.reshape(packed.shape[0], -1) @ x


def plain(packed: Tensor, x: Tensor) -> Tensor:
    """The upper first; a linear layer."""
    pair = torch.stack([packed >> 4, packed & 15], dim=-1)
    return torch.nn.functional.linear(x, pair.reshape(packed.shape[0], -1).to(x.dtype) - 8.0)


def crumbs(packed: Tensor, x: Tensor) -> Tensor:
    """Four 2-bit numbers a byte."""
    four = torch.stack([(packed >> (2 * k)) & 3 for k in range(4)], dim=-1)
    return (four.reshape(packed.shape[0], -1).to(x.dtype) - 1.5) @ x


def draw(rows: int, packed: int, *more: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    make = torch.Generator().manual_seed(rows + packed)
    weight = torch.randint(0, 256, (rows, packed), dtype=torch.uint8, generator=make)
    return [weight, *(torch.randn(*size, generator=make).to(dtype) for size in more)]


CASES = [
    (nibbles, draw(5, 1152, (5, 18), (2304,), dtype=torch.float16), 64),
    (nibbles, draw(3, 640, (3, 10), (1280,), dtype=torch.bfloat16), 32),
    (nibbles, draw(3, 66, (3, 11), (132,), dtype=torch.float32), 64),  # groups of 12: no pack has one scale
    (plain, draw(9, 600, (3, 1200), dtype=torch.float32), 32),
    (plain, draw(7, 51, (2, 102), dtype=torch.float16), 64),
    (crumbs, draw(6, 520, (2080,), dtype=torch.float32), 64),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("function", "inputs", "wave"), CASES)
def test_values(function: Callable[..., Tensor], inputs: list[Tensor], wave: int) -> None:
    text = check(Op(function), inputs, choices=CHOICES, wave=wave)
    assert "p_vector = p / 16" in text and ".v[v / " in text


LARGE = [torch.empty(4096, 2048, dtype=torch.uint8), torch.empty(4096, 32).half(), torch.empty(4096).half()]


def test_weights_are_not_unpacked_to_memory() -> None:
    kernels = explain(captured(Op(nibbles), LARGE))["kernels"]
    assert [k["mapping"] for k in kernels] == ["call:gemv"]


def halves(packed: Tensor, x: Tensor) -> Tensor:
    """All lower numbers before all upper ones: no byte holds two neighbours."""
    return torch.cat([packed & 15, packed >> 4], dim=-1).to(x.dtype) @ x


def test_other_orders_are_not_vectorised() -> None:
    inputs = draw(5, 64, (128,), dtype=torch.float32)
    text = check(Op(halves), inputs, choices={"call:matmul": "gemv"}, library=["aten.matmul.default"])
    assert "p_vector" not in text


def test_builds() -> None:
    assert "p_vector" in builds(Op(nibbles), LARGE)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64])
def test_bits_by_constants(dtype: torch.dtype) -> None:
    """Masks and shifts by constants, with and without wrapping to the width of small integers."""

    def bits(x: Tensor) -> tuple[Tensor, ...]:
        return x & 15, x >> 4, x >> 9, (x >> 1) & 127, (x & 100) << 2, (x >> 2) + 100, (x & 15).float() - 8.0

    x = torch.arange(-140, 300).to(dtype)
    check(Op(bits), [x])
