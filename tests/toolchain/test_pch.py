"""Precompiled headers change only the duration of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.toolchain import pch
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache

KERNEL = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = tanhf(x[threadIdx.x]) * {name}; }\n'


@pytest.mark.parametrize(
    ("source", "headers"),
    [
        ("#include <hip/hip_runtime.h>\nint x;", ("hip/hip_runtime.h",)),
        (
            "// why\n/* a\n b */ #include <hip/hip_fp16.h> \n\n#include <hip/hip_bf16.h>\n#define A 1\n"
            "#include <hip/hip_runtime.h>\n",
            ("hip/hip_fp16.h", "hip/hip_bf16.h"),
        ),
        ("#define HALF float\n#include <hip/hip_runtime.h>\n", ()),
        ("#include <cmath>\n#include <hip/hip_runtime.h>\n", ()),
        ('#include "hip/hip_runtime.h"\n', ()),
        ("", ()),
    ],
)
def test_only_headers_at_the_very_start_count(source: str, headers: tuple[str, ...]) -> None:
    assert pch.leading(source) == headers


def test_the_code_is_the_same_as_without(tmp_path: Path) -> None:
    source = "#include <hip/hip_runtime.h>\n" + KERNEL.replace("{name}", "2.0f")
    late = "#define UNUSED 1\n" + source  # no header at the start: none is precompiled
    cache = BuildCache(tmp_path)
    built = [amdgpu.build(text, "gfx942", {}, cache=cache) for text in (source, late)]
    assert all(b.ok for b in built)
    codes = [cache.get(b.isa_blob).split(b".amdgpu_metadata")[0] for b in built]
    assert codes[0] == codes[1]


@pytest.mark.parametrize("name", ["T", "N", "BLOCK"])
def test_a_knob_may_be_called_like_a_name_in_our_headers(tmp_path: Path, name: str) -> None:
    source = "#include <hip/hip_runtime.h>\n" + KERNEL.replace("{name}", "K_SCALE")
    built = amdgpu.build(source, "gfx942", {name: 4, "K_SCALE": 3}, cache=BuildCache(tmp_path))
    assert built.ok, built.log


def test_lines_of_errors_stay_those_of_the_source(tmp_path: Path) -> None:
    source = "#include <hip/hip_runtime.h>\n\n" + KERNEL.replace("{name}", "nothing_of_that_name")
    built = amdgpu.build(source, "gfx942", {}, cache=BuildCache(tmp_path))
    assert not built.ok and "kernel.hip:3:" in built.log
