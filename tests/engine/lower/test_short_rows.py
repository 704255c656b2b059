"""Reductions over few elements are expressions, and what a few columns share is computed once for them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine.lower import context
from hipwright.engine.rewrite import pinned_sizes
from tests.engine.harness import Op, check

NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (context, pinned_sizes):
        monkeypatch.setattr(module, "LARGE", 8)


def forces(place: torch.Tensor, mass: torch.Tensor) -> Any:
    apart = place[:, None, :, :] - place[:, :, None, :]
    inverse = torch.rsqrt(apart.square().sum(dim=-1) + 0.01)
    pull = mass[:, None, :] * inverse * inverse * inverse
    return (pull[..., None] * apart).sum(dim=2), -0.5 * mass * (mass[:, None, :] * inverse).sum(dim=2)


def neighbours(place: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    apart = place[:, None, :] - place[near]
    square = apart.square().sum(dim=-1).clamp(min=0.5)
    return ((1.0 / square)[..., None] * apart).sum(dim=1)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def kernels(text: str) -> int:
    return text.count('extern "C" __global__')


@pytest.mark.parametrize("bodies", [5, 33])
def test_forces_among_pairs_are_one_kernel(bodies: int) -> None:
    other = [drawn(2, 9, 3), drawn(2, 9).abs()]
    text = check(Op(forces), [drawn(4, bodies, 3), drawn(4, bodies).abs()], other=other)
    assert kernels(text) == 1 and "rsqrt_ = torch.empty" not in text


def test_what_one_kernel_gathers_is_not_stored() -> None:
    near = torch.randint(0, 20, (20, 7), generator=torch.Generator().manual_seed(1))
    text = check(Op(neighbours), [drawn(20, 3), near])
    assert kernels(text) == 1 and text.count("torch.empty") == 1


REDUCTIONS = {
    "sum": lambda x: x.exp().sum(-1),
    "mean": lambda x: (x * 2).mean(-1, keepdim=True) * x,
    "largest": lambda x: x.amax(-1) + 1,
    "smallest": lambda x: torch.stack([x.amin(-1), x.amax(-1)]),
    "norm": lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True),
    "two": lambda x: x.view(-1, 2, x.shape[-1]).sum((1, 2)),
    "middle": lambda x: torch.stack([x, x * x], 1).sum(1).tanh(),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_row_of_few_elements_is_written_out(name: str, size: int) -> None:
    x = drawn(40, size)
    if name in ("largest", "smallest"):
        x[3, 1], x[4, 0], x[5, 1], x[6] = NAN, INFINITY, -INFINITY, -INFINITY
    text = check(Op(REDUCTIONS[name]), [x])
    assert "lane_reduce" not in text or (name == "two" and size > 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = (drawn(40, 3) * 9).to(dtype)
    check(Op(lambda x: (x * x).sum(-1)), [x])
    check(Op(lambda x: x.amax(-1)), [x])


@pytest.mark.parametrize("kind", ["sum", "amax", "amin"])
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_a_costly_value_of_few_columns(kind: str, columns: int) -> None:
    def heavy(x: torch.Tensor, y: torch.Tensor) -> Any:
        value = (x * y).sin().exp()[..., None] * torch.stack([x, y, x - y, x + y][:columns], -1)
        return getattr(value, kind)(dim=1)

    check(Op(heavy), [drawn(6, 40), drawn(6, 40)])
