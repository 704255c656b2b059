"""Readers of rows in another order, or of other columns of a row, in the kernel of the rows' reduction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from hipwright.program import parse
from tests.engine.harness import Op, check


def kernels(text: str) -> list[str]:
    return [name for name in parse(text).kernels.signatures if not name.endswith("_exact")]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Rotary(nn.Module):
    """RMSNorm of each head, heads before tokens, rotary embedding (as in Qwen3)."""

    def __init__(self, width: int, turned: bool) -> None:
        super().__init__()
        self.norm, self.turned = nn.RMSNorm(width, eps=1e-6), turned

    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q = self.norm(q)
        return rotated(q.transpose(1, 2), cos, sin) if self.turned else rotated(q, cos[:, None], sin[:, None])


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("width", [64, 20, 256])
def test_a_norm_of_heads_and_a_rotary_embedding_are_one_kernel(width: int, turned: bool, wave: int) -> None:
    model = Rotary(width, turned)
    inputs = [drawn(2, 33, 6, width), drawn(33, width, seed=1), drawn(33, width, seed=2)]
    other = [drawn(1, 5, 3, width), drawn(5, width, seed=1), drawn(5, width, seed=2)]
    text = check(model, inputs, wave=wave, other=other)
    assert len(kernels(text)) == 1


ORDERS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "heads": (lambda x: x.softmax(-1).transpose(1, 2).contiguous(), (2, 7, 5, 33), (1, 3, 4, 33)),
    "reversed": (lambda x: x.softmax(-1).permute(2, 1, 0, 3) * 2.0, (3, 7, 5, 33), (2, 3, 4, 33)),
    "matrix": (lambda x: torch.nn.functional.layer_norm(x, (9,)).transpose(0, 1).contiguous(), (7, 5, 9), (4, 3, 9)),
    "summed": (lambda x: x - x.sum(-1, keepdim=True).permute(1, 0, 2).permute(1, 0, 2), (7, 5, 9), (4, 3, 9)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_rows_that_are_stored_in_another_order(name: str) -> None:
    function, shape, other = ORDERS[name]
    text = check(Op(function), [drawn(*shape)], other=[drawn(*other, seed=1)])
    assert len(kernels(text)) == 1


class Thirds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c = self.norm(x).chunk(3, dim=-1)
        return torch.cat((c * 2, a - b, b.exp()), dim=-1).transpose(0, 1)


def test_rows_of_three_parts() -> None:
    assert len(kernels(check(Thirds(), [drawn(6, 5, 48)], other=[drawn(2, 9, 48)]))) == 1


def unequal(x: torch.Tensor) -> torch.Tensor:
    x = x.softmax(-1)
    return torch.cat((x[..., 16:], x[..., :16]), dim=-1)


def other_rows(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1) * x.softmax(-1).flip(0)


@pytest.mark.parametrize("function", [unequal, other_rows])
def test_what_reads_more_than_a_row_is_right_too(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(Op(function), [drawn(6, 5, 48)], other=[drawn(2, 9, 48)])


def test_a_reader_of_the_parts_is_right() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = rotated(x.softmax(-1).transpose(0, 1), x.sum(0)[:, None].cos(), x.sum(0)[:, None].sin())
        return y, y.flip(-1) + 1

    check(Op(both), [drawn(6, 5, 32)], other=[drawn(2, 9, 32)])
