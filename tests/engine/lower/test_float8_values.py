"""Kernels that read and write 8-bit floats: the bits of torch's conversions, for every code and at every border.

What torch does is compared, in tests/sim/formats, with a reference written from the specifications.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import author
from hipwright.float8 import FLOAT8
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, Op, captured, leaves, run

DTYPES = [getattr(torch, name) for name in FLOAT8]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Float32 at and around each value of a format and each middle of two; special ones; all of bfloat16."""
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = codes[codes.isfinite()].unique()
    finite = torch.cat([finite, 2 * finite[-1:] - finite[-2:-1], 2 * finite[:1] - finite[1:2]]).unique()
    exact = torch.cat([finite, (finite[1:] + finite[:-1]) / 2])
    infinity = torch.full_like(exact, float("inf"))
    near = [exact, exact.nextafter(infinity), exact.nextafter(-infinity)]
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-45, 1e-38, 3.4e38])
    return torch.cat([*near, every, special])


def same(got: Any, expected: Any) -> None:
    """The same bits, except that a NaN may be any."""
    for a, b in zip(leaves(got), leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        x, y = (t.float() if t.is_floating_point() else t for t in (a, b))
        assert torch.equal(x.isnan(), y.isnan())
        known = ~x.isnan()
        bits = [t.view(torch.uint8) if t.dtype.itemsize == 1 else t.view(torch.int16 if t.dtype.itemsize == 2 else
                torch.int32) for t in (a, b)]  # fmt: skip
        wrong = (bits[0] != bits[1]) & known
        assert not wrong.any(), (x[wrong][:5], y[wrong][:5])


def judged(
    function: Any, inputs: list[torch.Tensor], *, wave: int = 64, other: list[torch.Tensor] | None = None
) -> Any:
    """Runs the engine's program of a function, which has kernels alone, and compares; returns what was authored."""
    model = Op(function)
    made = author(captured(model, inputs), {})
    assert not made.explanation["library"]
    for case in [inputs, *([other] if other else [])]:
        same(run(made.program, model, case, wave=wave)[0], model(*case))
    return made


def test_every_code_is_read() -> None:
    codes = [torch.arange(256, dtype=torch.uint8).view(dtype).view(2, 128) for dtype in DTYPES]
    judged(lambda *x: [(t.float(), t.to(torch.bfloat16), t.half(), t.float() * 0.5) for t in x], codes)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float64], ids=["fp32", "bf16", "fp64"])
def test_every_border_is_written(source: torch.dtype) -> None:
    """One element a thread and, from 2^17 elements, vectors; in the second case vectors are cut."""
    x = torch.cat([numbers(dtype) for dtype in DTYPES]).to(source)
    judged(lambda x: [x.to(dtype) for dtype in DTYPES], [x], other=[x[:513]])


def test_an_intermediate_is_rounded() -> None:
    x = torch.cat([numbers(dtype) for dtype in DTYPES])
    x = x[: len(x) // 64 * 64].view(-1, 64)

    def rounded(x: torch.Tensor, y: torch.Tensor) -> Any:
        return [(x.to(d).float() + y, x.to(d).float().amax(dim=-1) + 1.0) for d in DTYPES]

    judged(rounded, [x, torch.randn(64)])


def test_formats_convert_to_one_another() -> None:
    codes = [torch.arange(256, dtype=torch.uint8).view(dtype) for dtype in DTYPES]
    judged(lambda *x: [t.to(other) for t in x for other in DTYPES if other is not t.dtype], codes)


@pytest.mark.parametrize(("wave", "width"), [(64, 4096), (32, 1000), (64, 77)])
def test_rows_are_quantised(wave: int, width: int) -> None:
    """By the largest of a row; widths that cut vectors, and a NaN, an infinity and zeros in rows."""

    def quantised(x: torch.Tensor) -> Any:
        x = x.float()
        step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
        return (x / step).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), step

    x = torch.randn(9, width, dtype=torch.bfloat16)
    x[1], x[2, 3], x[3, 4] = 0.0, float("nan"), float("inf")
    made = judged(quantised, [x], wave=wave, other=[torch.randn(3, width + 5, dtype=torch.bfloat16)])
    assert "448.0f)" not in made.program.text.split("_out.v[k] =")[1].split(";")[0], (
        "saturating makes clamps superfluous"
    )


def test_values_that_are_read_back_are_not_clamped_either() -> None:
    """What is stored and what is computed with its value round one number, which saturates."""

    def both(x: torch.Tensor, scale: torch.Tensor) -> Any:
        codes = (x / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return codes, codes.float() * scale

    made = judged(both, [numbers(torch.float8_e4m3fn), torch.tensor([0.5])])
    text = made.program.text
    assert "round_float8_e4m3fn(" in text and "448.0f" not in text

    made = judged(lambda x: x.clamp(-240.0, 448.0).to(torch.float8_e4m3fn).float(), [numbers(torch.float8_e4m3fn)])
    assert "240.0f" in made.program.text, "a clamp below the largest number decides"


def test_copies_move_bytes() -> None:
    """Transposed, gathered and joined values keep their codes."""
    x = [torch.arange(256, dtype=torch.uint8).view(dtype).view(16, 16) for dtype in DTYPES]
    index = torch.tensor([3, 0, 15, 3])
    judged(lambda i, *x: [(t.t().contiguous(), t[i], torch.cat([t, t[:2]], dim=0)) for t in x], [index, *x])


def test_only_superfluous_clamps_are_dropped() -> None:
    limits = (240.0, 448.0, 500.0)
    both = (torch.float8_e4m3fn, torch.float8_e5m2)
    made = judged(lambda x: [x.clamp(-a, a).to(d) for a in limits for d in both], [numbers(torch.float8_e4m3fn)])
    assert made.program.text.count("448.0f)") == 2, "e5m2 does not saturate"


def test_builds_without_scratch() -> None:
    def rows(x: torch.Tensor, *w: torch.Tensor) -> Any:
        step = x.float().abs().amax(dim=-1, keepdim=True) / 240.0
        return step, [((x.float() / step).to(t.dtype), (x.float() * t.float()).to(t.dtype)) for t in w]

    inputs = [torch.randn(64, 2048, dtype=torch.bfloat16), *(torch.randn(2048).to(dtype) for dtype in DTYPES)]
    program = author(captured(Op(rows), inputs), {}).program
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    for target in ("gfx942", "gfx950"):
        build = amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert all(kernel.scratch_bytes == 0 for kernel in build.kernels)
    build = nvrtc.build(parsed.hip, defines, arch="sm_90", pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log
