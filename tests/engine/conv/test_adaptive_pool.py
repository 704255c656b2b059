"""Adaptive pooling of small planes in LDS: windows of any size, planes that fit and planes that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check, compare, kernels_in, reference, run
from tests.engine.template_builds import program_builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    x.view(-1)[7], x.view(-1)[-1] = float("nan"), float("-inf")
    return x


FUNCTIONS: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
    (lambda x: F.adaptive_avg_pool2d(x, 7), (3, 3, 42, 42), (2, 5, 13, 10)),
    (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (5, 2, 20, 11), (1, 3, 3, 5)),
    (lambda x: F.adaptive_avg_pool2d(x.relu() * 2, (4, 2)) + 1, (2, 3, 9, 17), (2, 2, 100, 100)),
    (lambda x: F.adaptive_avg_pool2d(x, 6).exp(), (2, 7, 25, 31), (2, 3, 8, 6)),
    (lambda x: F.adaptive_avg_pool1d(x, 5), (4, 3, 37), (2, 2, 5000)),
    (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), (2, 2, 5, 7, 6), (1, 2, 4, 6, 9)),
]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", range(len(FUNCTIONS)))
@pytest.mark.matrix(keep=6)
def test_values(which: int, dtype: torch.dtype, wave: int) -> None:
    """At captured sizes and at others, of which some planes do not fit LDS."""
    function, shape, other = FUNCTIONS[which]
    model, x = Op(function), draw(*shape, dtype=dtype)
    keys = [k for k in space(captured(model, [x])) if k.startswith("call:") and k.count(":") == 1]
    text = check(
        model,
        [x],
        choices=dict.fromkeys(keys, "planes"),
        wave=wave,
        other=[draw(*other, dtype=dtype)],
    )
    assert "lds_planes[" in text and kernels_in(text) == 1


def test_the_default_for_many_small_planes() -> None:
    """The program captured with many planes is also correct for one plane and for a partial last block."""
    model = Op(lambda x: F.adaptive_avg_pool2d(x, 7))
    program = write(captured(model, [torch.empty(256, 512, 42, 42, dtype=torch.float16)]))
    assert "4 planes a block in LDS" in program.text
    for case in (draw(1, 1, 42, 42, dtype=torch.float16), draw(3, 3, 42, 42, dtype=torch.float16)):
        expected, native, _ = reference(model, [case])
        got, _ = run(program, model, [case])
        compare(got, expected, native)


def test_few_elements_and_large_planes_stay_generic() -> None:
    model = Op(lambda x: F.adaptive_avg_pool2d(x, 7))
    for shape in ((2, 3, 42, 42), (64, 64, 230, 230)):
        assert "lds_planes[" not in write(captured(model, [torch.empty(shape)])).text


def test_builds() -> None:
    """Memory is read 16 bytes at a time; with constant sizes a pair of halves is one read of LDS."""
    model = Op(lambda x: F.adaptive_avg_pool2d(x, 7))
    program = write(captured(model, [torch.empty(256, 512, 42, 42, dtype=torch.float16)]))
    build = program_builds(program, lambda target: 4)
    (exact,) = (k for k in build.kernels if k.name.endswith("_exact"))
    assert exact.vgpr <= 32 and exact.lds_bytes <= 16384
    assert exact.widest_vmem_bytes == 16
