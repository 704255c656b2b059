"""Sums, means, extremes and single elements scattered by index: values with NaN and repeated places; AMD builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import explain, write
from tests.engine.harness import Op, captured, check, run
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 9).to(dtype)


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(4))


def scattered(mode: str, include: bool, dim: int) -> nn.Module:
    return Op(lambda x, i, s: (x + 1).scatter_reduce(dim, i, s, mode, include_self=include))


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.matrix(keep=3)
def test_scatter_reduce(mode: str, include: bool, dtype: torch.dtype, dim: int, wave: int) -> None:
    kept = ["aten.scatter_reduce.two"] if mode == "prod" and dtype.is_floating_point else []
    x, source = draw(7, 9, dtype=dtype), draw(23, 31, dtype=dtype)
    index = whole((5, 9)[dim], 21, 4) if dim == 0 else whole(6, 5, 29)  # some places are not named
    check(scattered(mode, include, dim), [x, index, source], wave=wave, library=kept)


@pytest.mark.parametrize("mode", ["amax", "amin", "mean", "sum"])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.matrix(keep=3)
def test_nan_infinity_and_signed_zeros(mode: str, include: bool) -> None:
    bad = float("nan")
    x = torch.tensor([1.0, bad, -bad, -3.0, float("inf"), -float("inf"), -0.0, 0.0, -2.0])
    x[2] = torch.tensor(-4194304, dtype=torch.int32).view(torch.float32)  # a NaN with its sign set
    index = torch.tensor([0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 8])
    source = torch.tensor([-bad, 1.0, -1.0, bad, -7.0, -1.0, 2.0, 0.0, -0.0, -1.0, -float("inf"), 5.0])
    source[0] = x[2]
    check(scattered(mode, include, 0), [x, index, source])


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("mode", ["amax", "amin", "mean", "prod"])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.matrix(keep=3)
def test_index_reduce(mode: str, include: bool) -> None:
    model = Op(lambda x, i, s: x.index_reduce(1, i, s, mode, include_self=include))
    dtype = torch.int64 if mode == "prod" else torch.float32
    check(model, [draw(3, 6, 5, dtype=dtype), whole(5, 13), draw(3, 13, 5, dtype=dtype)])


def test_extremes_are_the_same_in_every_order() -> None:
    """Extremes must not depend on the order: the verifier compares bits."""
    model = scattered("amax", True, 0)
    inputs = [draw(3, 4), whole(3, 200, 4), draw(200, 4)]
    text = write(captured(model, inputs)).text
    assert "atomicAdd" not in text and "atomic_highest" in text
    small = Op(lambda x, i, s: x.scatter_reduce(0, i, s, "amin"))
    check(small, [torch.full((2,), 2**31 - 1).int(), whole(2, 9), torch.full((9,), -(2**31)).int()])


SET: list[Callable[..., Any]] = [
    lambda x, i, s: torch.relu(x.scatter(0, i, s) * 2),
    lambda x, i, s: x.scatter(1, i[:, :3] % 3, s),
    lambda x, i, s: x.scatter(0, i, 3.0),
    lambda x, i, s: (x * 2).index_copy(0, i[:6, 0], s[:6]) + 1,
    lambda x, i, s: x.index_put((i[:, 0],), s),
    lambda x, i, s: x.index_put((i[:, 0],), s[0]),
    lambda x, i, s: x.index_put((i[:, 0] - 7,), s[3:4], accumulate=True),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("which", range(len(SET)))
@pytest.mark.matrix(keep=3)
def test_set_elements(which: int, dtype: torch.dtype) -> None:
    """Places are named several times: the last element stays, as on PyTorch's CPU."""
    check(Op(SET[which]), [draw(7, 4, dtype=dtype), whole(7, 5, 4), draw(5, 4, dtype=dtype)], wave=32)


def test_masks_are_set_and_the_choice_fuses() -> None:
    x, index = torch.zeros(4, 9, dtype=torch.bool), whole(9, 4, 3)
    check(Op(lambda x, i: ~x.scatter(1, i, True)), [x, index])
    made = explain(captured(Op(SET[0]), [draw(7, 4), whole(7, 5, 4), draw(5, 4)]))
    assert len(made["kernels"]) == 3 and "relu" in made["kernels"][-1]["nodes"]


@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_old_forms_and_empty_sources() -> None:
    for how, dtype in (("add", torch.float32), ("multiply", torch.int64)):
        model = Op(lambda x, i, s, how=how: x.scatter(0, i, s, reduce=how))
        check(model, [draw(7, 4, dtype=dtype), whole(7, 5, 4), draw(5, 4, dtype=dtype)])
    model = scattered("mean", False, 0)
    program = write(captured(model, [draw(7, 4), whole(7, 5, 4), draw(5, 4)]))
    x = draw(7, 4)
    got, _ = run(program, model, [x, whole(7, 0, 4), draw(0, 4)])
    assert torch.equal(got, x + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_builds(dtype: torch.dtype) -> None:
    modes = ["mean", "amax", "amin", *(["prod"] if dtype == torch.int64 else [])]

    def every(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> Any:
        reduced = [x.scatter_reduce(0, i, s, mode, include_self=mode != "amin") for mode in modes]
        return *reduced, x.scatter(0, i, s), x.scatter(0, i, 1)

    builds(Op(every), [torch.empty(512, 64, dtype=dtype), whole(512, 4096, 64), torch.empty(4096, 64, dtype=dtype)])
