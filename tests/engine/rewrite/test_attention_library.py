"""Written-out attention of half tensors as the library's kernel: its values, its form in the plan, and near misses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check

HALF = torch.float16
KEY = "attention:softmax"


def draw(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def cast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2)).float() * 0.3, dim=-1).to(v.dtype) @ v


def divided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 2.5 * 0.5, dim=-1) @ v


def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads behind positions, as they leave a linear layer."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return (torch.softmax(q @ k.transpose(-1, -2) * 0.3, dim=-1) @ v).transpose(1, 2)


def spelled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = torch.einsum("bqhd,bkhd->bhqk", q, k).mul(0.3).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", p, v)


def shared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.repeat_interleave(2, dim=1) for x in (k[:, :2], v[:, :2]))
    return cast(q, k, v)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("function", [cast, divided, turned, spelled, shared])
def test_values_and_form(function: Callable[..., Tensor]) -> None:
    heads_first = function in (cast, divided, shared)
    first, then = (
        [draw(2, 4, n, 16) if heads_first else draw(2, n, 4, 16) for n in (rows, keys, keys)]
        for rows, keys in ((5, 9), (9, 6))
    )
    text = check(
        Op(function),
        first,
        other=then,
        choices={
            KEY: "library",
            "call:softmax_attention": "library",
            "call:matmul_1": "library",
            "call:einsum_1": "library",
        },
        library=["aten.scaled_dot_product_attention.default"],
    )
    assert text.count("F.scaled_dot_product_attention(") == 1 and "matmul(" not in text
    assert ("enable_gqa=True" in text) == (function is shared)


def test_large_ones_are_the_librarys() -> None:
    graph = captured(Op(cast), [torch.empty(8, 12, 512, 64, dtype=HALF)] * 3)
    assert space(graph)[KEY].default == "library"
    assert (
        "F.scaled_dot_product_attention(q, k, v, scale=0.3)" in write(graph).text or "scale=0.3)" in write(graph).text
    )


def negative(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * -0.3, dim=-1) @ v


def shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2) + 1).tanh(), dim=-1) @ v


def widened(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2)).float(), dim=-1) @ v.float()


@pytest.mark.parametrize(
    ("function", "size", "dtype"),
    [(negative, 16, HALF), (shifted, 16, HALF), (widened, 16, HALF), (cast, 20, HALF), (divided, 16, torch.float32)],
)
def test_near_misses(function: Callable[..., Tensor], size: int, dtype: torch.dtype) -> None:
    graph = captured(Op(function), [torch.empty(2, 4, 9, size, dtype=dtype)] * 3)
    assert all("library" not in c.options for k, c in space(graph).items() if k.startswith("attention:"))
