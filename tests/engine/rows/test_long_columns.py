"""Columns that stay in registers, rows of odd lengths loaded in vectors, losses that need rows twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import program_builds

INFINITY = float("inf")


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def columns(channels: int, dtype: torch.dtype) -> torch.Tensor:
    """Columns of minus infinity alone, with one NaN, with one infinity, with large values."""
    x = numbers(2, channels, 9, 4, dtype=dtype)
    x[0, :, 0, 0], x[0, channels - 1, 0, 1], x[0, 0, 0, 2] = -INFINITY, float("nan"), INFINITY
    x[1, :, 2] *= 300
    return x


def softmax(x: torch.Tensor) -> Any:
    return x.softmax(1)


def root_mean_square(x: torch.Tensor) -> Any:
    return x / (x.square().mean(1, keepdim=True) + 1e-3).sqrt()


def place(x: torch.Tensor) -> Any:
    return x.argmin(1), x.amax(1)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("channels", [21, 70, 150, 300], ids=str)
@pytest.mark.parametrize("function", [softmax, root_mean_square, place], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_columns(function: Callable[..., Any], channels: int, dtype: torch.dtype, wave: int) -> None:
    """The captured ones fit registers, others may not."""
    model, x = Op(function), columns(channels, dtype)
    written = write(captured(model, [x]), {"exact": channels == 150})
    for case in (x, columns(33, dtype), columns(600, dtype)):
        expected, native, _ = reference(model, [case])
        got, _ = run(written, model, [case], wave=wave)
        compare(got, expected, native)


def odd(length: int, dtype: torch.dtype) -> torch.Tensor:
    x = numbers(9, length, dtype=dtype)
    x[0] *= 300
    x[1], x[2, length // 2], x[3, length - 1] = -INFINITY, INFINITY, float("nan")
    return x


def logs(x: torch.Tensor) -> Any:
    return x.float().logsumexp(-1)


def largest(x: torch.Tensor) -> Any:
    return x.amax(-1), x.float().abs().amin(-1)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [logs, largest], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_odd_rows(function: Callable[..., Any], dtype: torch.dtype, wave: int) -> None:
    """Each row begins at another offset from an aligned address."""
    model, x = Op(function), odd(5003, dtype)
    graph = captured(model, [x])
    written = write(graph, {key: False for key in space(graph) if key.startswith(("cooperative:", "peel:"))})
    assert "load_unaligned_tile<" in written.text
    for case in (x, odd(4096, dtype), odd(7, dtype)):
        expected, native, _ = reference(model, [case])
        got, _ = run(written, model, [case], wave=wave)
        compare(got, expected, native)


def divergence(student: torch.Tensor, teacher: torch.Tensor) -> Any:
    p, q = student.log_softmax(-1), teacher.log_softmax(-1)
    return (q.exp() * (q - p)).sum(-1)


def gradient(logits: torch.Tensor, target: torch.Tensor) -> Any:
    hot = torch.zeros_like(logits).scatter(1, target[:, None], 1.0)
    return (logits.softmax(-1) - hot) / logits.shape[0]


@pytest.mark.parametrize("wave", [32, 64])
def test_a_row_needed_twice_is_loaded_once(wave: int) -> None:
    model, inputs = Op(divergence), [numbers(3, 3000), numbers(3, 3000, seed=4)]
    written = write(captured(model, inputs))
    assert written.text.count("this thread's tile of the row") >= 2
    expected, native, _ = reference(model, inputs)
    got, _ = run(written, model, inputs, wave=wave)
    compare(got, expected, native)


def test_guarded_loads_are_performed_once_per_row() -> None:
    model, inputs = Op(gradient), [numbers(4, 2500), torch.tensor([0, 2499, 7, 1300])]
    written = write(captured(model, inputs), {"exact": False})
    reads = [line for line in written.text.splitlines() if "[row]" in line]
    assert len(reads) <= 2  # one in each branch: rows that fit registers, and others
    assert all("target_value" in line or "_value = " in line for line in reads)
    expected, native, _ = reference(model, inputs)
    got, _ = run(written, model, inputs)
    compare(got, expected, native)


def test_builds() -> None:
    for function, inputs in (
        (softmax, [torch.empty(8, 150, 64, 64)]),
        (softmax, [torch.empty(8, 64, 64, 64, dtype=torch.float16)]),
        (softmax, [torch.empty(8, 500, 64, 64)]),
        (logs, [torch.empty(2048, 50257, dtype=torch.bfloat16)]),
        (divergence, [torch.empty(4096, 8192), torch.empty(4096, 8192)]),
        (masked_norm, [torch.empty(512, 2900, 48).bfloat16(), torch.full((512,), 2900)]),
    ):
        program_builds(write(captured(Op(function), inputs)), lambda target: 1)


def over_frames(x: torch.Tensor, length: torch.Tensor) -> Any:
    """Mean and variance of the frames of each utterance, as many as it has."""
    mask = (torch.arange(x.shape[1]) < length[:, None]).to(x.dtype)[:, :, None]
    centred = (x - (x * mask).sum(1, keepdim=True) / length[:, None, None]) * mask
    return centred * torch.rsqrt(centred.square().sum(1, keepdim=True) / length[:, None, None] + 1e-5)


def test_few_long_columns_at_once_stay_in_the_cache_for_the_next_pass() -> None:
    """Three passes over 63 MB, of which 33 blocks of two vectors of 32 bytes hold what the cache keeps, where no
    registers do.
    """

    def knobs(batch: int, frames: int) -> Any:
        graph = captured(Op(over_frames), [torch.zeros(batch, frames, 80), torch.full((batch,), frames)])
        return {name: space(graph)[name].default for name in ("BLOCK", "COLUMNS")}

    assert knobs(64, 3080) == {"BLOCK": 512, "COLUMNS": 2}
    assert knobs(8, 3080) != {"BLOCK": 512, "COLUMNS": 2}, "all of it stays in the cache"
    assert knobs(4096, 60) != {"BLOCK": 512, "COLUMNS": 2}, "short columns"
    program = write(captured(Op(over_frames), [torch.zeros(64, 3080, 80), torch.full((64,), 3080)]))
    assert "this thread's tile of the row" not in program.text, "longer than registers hold"
    inputs = [numbers(2, 1100, 11) + 3, torch.tensor([1100, 37])]
    expected, native, _ = reference(Op(over_frames), inputs)
    compare(run(program, Op(over_frames), inputs, wave=32)[0], expected, native)


def test_few_long_columns_are_summed_by_a_kernel_and_normalised_by_another() -> None:
    """A batch norm in training mode, written for 16384 rows, at fewer."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(24), torch.nn.SiLU())
    program = write(captured(model, [torch.empty(16384, 24)]), {"exact": False})
    assert program.text.count('extern "C"') == 2
    for rows in (700, 33):
        x = numbers(rows, 24) * 3 + 5
        expected, native, _ = reference(model, [x])
        compare(run(program, model, [x])[0], expected, native)


def masked_norm(x: torch.Tensor, length: torch.Tensor) -> Any:
    mask = (torch.arange(x.shape[1], device=x.device) < length[:, None]).float()[:, :, None]
    wide, count = x.float() * mask, length.float()[:, None, None]
    mean = wide.sum(1, keepdim=True) / count
    centred = (wide - mean) * mask
    return (centred * torch.rsqrt(centred.square().sum(1, keepdim=True) / count + 1e-5)).to(x.dtype)


def weights(x: torch.Tensor, length: torch.Tensor) -> Any:
    return (x.float() + length[:, None, None]).softmax(1).to(x.dtype)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [masked_norm, weights], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=2)
def test_long_columns_are_held(function: Callable[..., Any], dtype: torch.dtype, wave: int) -> None:
    """Blocks as wide as a sector hold what would be read again from memory; lengths beyond are read again."""
    model, length = Op(function), torch.tensor([7, 900])
    written = write(captured(model, [torch.empty(512, 2900, 48, dtype=dtype), torch.full((512,), 2900)]))
    assert ("keep_packed(" in written.text) == (dtype == torch.bfloat16)
    assert "this thread's tile of the row" in written.text
    for shape in ((2, 1000, 7), (2, 3001, 16), (2, 6200, 24)):
        x = numbers(*shape, dtype=dtype)
        expected, native, _ = reference(model, [x, length])
        got, _ = run(written, model, [x, length], wave=wave)
        compare(got, expected, native)
