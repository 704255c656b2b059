"""Rows that stay in registers whole: one exponential per element, maxima that ignore NaN, all loads issued at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import write
from hipwright.engine.rewrite.specialise import specialise
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import program_builds

INFINITY = float("inf")


def awkward(rows: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of large values, of minus infinity alone, with one infinity, with one NaN, of NaN alone."""
    x = torch.randn(rows, length, generator=torch.Generator().manual_seed(7)).to(dtype)
    x[0] *= 300
    x[1], x[2, length // 2], x[3, length - 1], x[4] = -INFINITY, INFINITY, float("nan"), float("nan")
    x[5, 1:] = -INFINITY
    x[6, 0] = -INFINITY
    return x


def softmax(x: torch.Tensor) -> Any:
    return x.softmax(-1)


def warm(x: torch.Tensor) -> Any:
    wide = x if x.dtype == torch.float64 else x.float()  # the reference in double precision must not round to float
    return (wide / (wide[:, :1].abs().clamp(max=2.0) + 0.5)).softmax(-1).to(x.dtype)


def logs(x: torch.Tensor) -> Any:
    return x.log_softmax(-1), x.logsumexp(-1)


def shown(x: torch.Tensor) -> Any:
    """The maximum itself is an output, so it must propagate NaN."""
    top = x.amax(-1, keepdim=True)
    return top, (x - top).exp() / (x - top).exp().sum(-1, keepdim=True)


def chosen(x: torch.Tensor) -> Any:
    """A value of the maximum alone must propagate NaN."""
    top = x.amax(-1, keepdim=True)
    return torch.where(top > 0, top, (x - top).exp().sum(-1, keepdim=True))


FUNCTIONS = {f.__name__: f for f in (softmax, warm, logs, shown, chosen)}


def program(name: str, x: torch.Tensor, **choices: Any) -> Any:
    return write(specialise(captured(Op(FUNCTIONS[name]), [x])), choices)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(70, 61), (300, 1000)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.matrix(keep=3)
def test_rows_of_any_length(name: str, shape: tuple[int, int], dtype: torch.dtype, wave: int) -> None:
    """The captured ones fit registers, others may not."""
    model, x = Op(FUNCTIONS[name]), awkward(*shape, dtype)
    written = write(captured(model, [x]), {"exact": shape[1] > 100})
    for case in (x, awkward(9, 30, dtype), awkward(8, 2500, dtype)):
        expected, native, _ = reference(model, [case])
        got, _ = run(written, model, [case], wave=wave)
        compare(got, expected, native)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(70, 64), (70, 61), (9, 1000), (300, 1001)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.matrix(keep=3)
def test_values(name: str, shape: tuple[int, int], dtype: torch.dtype, wave: int) -> None:
    x = awkward(*shape, dtype)
    model = Op(FUNCTIONS[name])
    expected, native, _ = reference(model, [x])
    got, _ = run(program(name, x), model, [x], wave=wave)
    compare(got, expected, native)


def test_emitted_text() -> None:
    text = program("softmax", torch.empty(4096, 64, dtype=torch.float16)).text
    assert text.count("exp_fast(") == 1  # one exponential an element
    assert "fmaxf(" in text
    assert "nan_max" not in text
    assert "exp_fast" not in program("softmax", torch.empty(4096, 64)).text
    for name in ("shown", "chosen"):
        assert "nan_max(" in program(name, torch.empty(4096, 64)).text
    kernel = program("warm", torch.empty(4096, 64)).text.partition('extern "C"')[2].splitlines()
    assert sum("_row[k] = divide_closely(" in line for line in kernel) == 1  # the quotient, which stays


def test_a_maximum_and_its_index_are_one_state() -> None:
    text = write(captured(Op(lambda x: x.max(-1)), [torch.empty(128, 1000)])).text
    assert text.count("block_reduce<ROW_BLOCK>(") == 1
    assert "nan_max" not in text


def test_builds() -> None:
    for name, x in (
        ("softmax", torch.empty(1 << 20, 64, dtype=torch.float16)),
        ("warm", torch.empty(16384, 10007, dtype=torch.bfloat16)),
        ("logs", torch.empty(256, 1000)),
    ):
        for written in (program(name, x), write(captured(Op(FUNCTIONS[name]), [x]))):
            build = program_builds(written, lambda target: 2)
            assert all(kernel.scratch_bytes == 0 for kernel in build.kernels), build.kernels
