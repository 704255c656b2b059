"""Strided rows, of several contiguous runs (BatchNorm's channels, means over separate axes): one pass, in vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain, write
from tests.engine.harness import Op, captured, check, compare, kernels_in, reference, run
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


STATISTICS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: torch.var_mean(x, (0, 2, 3)),
    torch.var_mean,
    lambda x: torch.std_mean(x, (0, 2), correction=1, keepdim=True),
    lambda x: torch.var_mean(x, (1, 3), correction=0),
    lambda x: torch.var_mean(x, 1, unbiased=False),
    lambda x: torch.std_mean(x, keepdim=True, correction=2),
    lambda x: (x.mean((0, 2)), x.amax((1, 3))),
    lambda x: (x - x.mean((0, 2, 3), keepdim=True)) * torch.rsqrt(x.var((0, 2, 3), keepdim=True) + 1e-5),
]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("which", range(len(STATISTICS)))
@pytest.mark.matrix(keep=6)
def test_statistics(which: int, dtype: torch.dtype, wave: int) -> None:
    x = draw(6, 3, 6, 8, dtype=dtype) + 40
    check(Op(STATISTICS[which]), [x], wave=wave, other=[draw(5, 3, 7, 5, dtype=dtype)])


def test_one_kernel_and_no_library_call() -> None:
    for function in STATISTICS[:2]:
        made = explain(captured(Op(function), [draw(6, 3, 6, 8)]))
        assert len(made["kernels"]) == 1 and not made["library"]


@pytest.mark.parametrize(("shape", "other"), [((33, 3, 7, 7), (2, 3, 1, 9)), ((40, 3, 6, 6), (9, 3, 5, 5))])
@pytest.mark.parametrize("wave", [32, 64])
def test_batch_norm_of_short_runs(shape: tuple[int, ...], other: tuple[int, ...], wave: int) -> None:
    text = check(
        Op(lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True))),
        [draw(*shape) + 9, draw(3), draw(3)],
        wave=wave,
        other=[draw(*other), draw(3), draw(3)],
    )
    assert "load_strided_row<" in text and "store_strided_row<" in text and kernels_in(text) == 1


def test_cooperative_blocks_of_short_runs() -> None:
    model = nn.BatchNorm2d(2)
    x = draw(300, 2, 8, 6)
    graph = captured(model, [x])
    program = write(graph, {"cooperative:batch_norm": True, "ROW_ITEMS": 1, "ROW_BLOCK": 64, "COOP_BLOCKS": 4})
    assert "ticket" in program.text and "load_strided_row<" in program.text
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)


def test_nan_and_infinity_stay_in_their_channel() -> None:
    x = draw(8, 4, 6, 6)
    x[2, 1, 3, 3], x[5, 2, 0, 0] = float("nan"), float("inf")
    check(Op(lambda x: (*torch.var_mean(x, (0, 2, 3)), F.batch_norm(x, None, None, training=True))), [x])


def test_strided_columns_are_loaded_in_vectors() -> None:
    text = check(Op(lambda x: x.mean((0, 2))), [draw(5, 8, 6, 16)], other=[draw(5, 8, 6, 13)])
    assert "load_strided_columns<" in text


def test_builds() -> None:
    x = torch.empty(64, 256, 14, 14)
    text = builds(nn.BatchNorm2d(256), [x])
    assert "ROW_VEC = knob(4" in text
    builds(Op(lambda x: (torch.var_mean(x, (0, 2, 3)), x.mean((0, 2)))), [x.half()])
