"""Warnings name the correct line, and clean source has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.audit.cases import CORPUS
from hipwright.program import parse
from hipwright.verify.hip_lint import lint

PROGRAM = """# a comment, so that lines are shifted
HIP = r'''
#include <hip/hip_runtime.h>
{top}
extern "C" __global__ void k(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
'''


def forward(self, x):
    y = torch.empty_like(x)
    k[1, 64](x, y, x.numel())
    return y
"""
HONEST = sorted((CORPUS / "program" / "honest").glob("*.py"))


def warnings(body: str = "if (i < n) y[i] = x[i];", top: str = "", targets=("gfx942",)):
    return lint(parse(PROGRAM.format(body=body, top=top)), targets)


@pytest.mark.parametrize(
    ("body", "kind", "fragment"),
    [
        ("if (i < n) y[i] = __shfl_xor_sync(0xffffffff, x[i], 1);", "portability", "mask"),
        (
            "float v = x[i < n ? i : 0]; for (int d = 16; d > 0; d >>= 1) v += __shfl_down(v, d);",
            "wave_size",
            "32 lanes",
        ),
        ("if (i < n) { unsigned m = __ballot(x[i] > 0); y[i] = m; }", "wave_size", "64 bits"),
        ("__shared__ float t[64][300]; if (i < n) y[i] = t[0][0];", "resources", "76800 bytes"),
        ("y[blockIdx.x * 64 + threadIdx.x] = x[i];", "bounds", "past the end"),
        ('if (i < n) asm volatile("s_nop 0");', "portability", "assembly"),
        ('if (i < n) printf("%d", i);', "host", "printf"),
    ],
)
def test_each_finding_names_its_line(body: str, kind: str, fragment: str) -> None:
    found = warnings(body)
    assert any(w.kind == kind and w.line in (6, 7) and fragment in w.message for w in found), found
    assert kind == "bounds" or any(w.line == 7 for w in found)


def test_wave_findings_need_a_target_with_64_lanes() -> None:
    body = "float v = x[i < n ? i : 0]; for (int d = 16; d > 0; d >>= 1) v += __shfl_down(v, d);"
    assert warnings(body, targets=("gfx942", "gfx1100"))
    assert not warnings(body, targets=("gfx1100",))


def test_a_shuffle_of_width_32_is_meant_so() -> None:
    assert not warnings("float v = x[i < n ? i : 0]; for (int d = 16; d > 0; d >>= 1) v += __shfl_down(v, d, 32);")


def test_unknown_headers_are_named() -> None:
    assert [w.line for w in warnings(top="#include <cub/cub.cuh>")] == [4]
    assert not warnings(top="#include <hip/hip_fp16.h>")


def test_comments_and_strings_are_no_findings() -> None:
    assert not warnings("if (i < n) y[i] = x[i]; // __shfl_sync, asm, printf(")


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_programs_are_clean(path: Path) -> None:
    assert lint(parse(path.read_text()), ("gfx942", "gfx1100")) == []
