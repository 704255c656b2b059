"""Queries, keys and values that are pieces of one product reach the library's attention as views: nothing is copied."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

from hipwright.engine.authoring import author
from hipwright.engine.ir.index import ix
from hipwright.engine.partition.plan_views import divides
from hipwright.program import parse
from tests.engine.harness import captured, check

WIDTH, HEADS, HEAD = 48, 3, 16


class Block(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.to(torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        y = self.qkv(x)
        if self.form in ("unbind", "scaled"):
            q, k, v = y.reshape(b, n, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
        elif self.form == "split":
            q, k, v = (t.view(b, n, HEADS, HEAD).transpose(1, 2) for t in y.split(WIDTH, dim=2))
        elif self.form == "sizes":
            q, k, v = (t.view(b, n, HEADS, HEAD).transpose(1, 2) for t in y.split([WIDTH] * 3, dim=-1))
        else:
            q, k, v = (t.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for t in y.chunk(3, dim=-1))
        if self.form == "scaled":
            mixed = torch.softmax((q * HEAD**-0.5) @ k.transpose(-1, -2), -1) @ v
        else:
            mixed = attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, n, WIDTH))


@pytest.mark.parametrize("form", ["unbind", "scaled", "split", "sizes", "chunk"])
def test_no_kernel_copies_the_operands_of_attention(form: str) -> None:
    x, other = (
        torch.randn(*shape, generator=torch.Generator().manual_seed(1)).half() for shape in ((2, 37, 48), (3, 5, 48))
    )
    text = check(Block(form), [x], other=[other], choices=called(Block(form), x), library=LIBRARY)
    assert not parse(text).kernels.signatures
    assert "scaled_dot_product_attention(" in text and ("scale=0.25" in text) == (form == "scaled")


def called(model: nn.Module, x: torch.Tensor) -> dict[str, str]:
    """The choices that leave attention and products to the library."""
    made = {"attention:softmax": "library"}
    space = author(captured(model, [x]), made).space
    return made | {name: "library" for name in space if name.count(":") == 1 and name.startswith("call:")}


LIBRARY = ("aten.linear.default", "aten.scaled_dot_product_attention.default")


class Unstored(nn.Module):
    """Pieces of what no call has stored are computed by kernels, each of them alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (x * 2 + 1).chunk(3, dim=-1)
        return attention(q, k, v)


def test_pieces_of_a_computed_tensor_are_written_by_kernels() -> None:
    x = torch.randn(2, 3, 20, 48, generator=torch.Generator().manual_seed(1)).half()
    text = check(Unstored(), [x], choices=called(Unstored(), x), library=LIBRARY)
    assert parse(text).kernels.signatures


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4))
def test_divided_sizes_are_known(parts: list[list[int]]) -> None:
    old = [ix(torch.Size(part).numel()) for part in parts]
    assert divides(old, [ix(size) for part in parts for size in part])
    assert not divides([*old, ix(2)], [ix(size) for part in parts for size in part])


@pytest.mark.parametrize(("old", "new"), [((4, 6), (6, 4)), ((4, 6), (24,)), ((4, 6), (2, 12)), ((8,), (3, 3))])
def test_other_sizes_are_no_division(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    assert not divides([ix(s) for s in old], [ix(s) for s in new])
