"""Names and overloads of hipwright's headers against AMD's: what these lack is found by the linter."""

from __future__ import annotations

import re

import pytest

from benchmarks.headers import sets
from benchmarks.headers.compilers import Hipcc
from benchmarks.headers.sources import Source
from hipwright.program.blanking import blank
from hipwright.toolchain.amd.rocm_names import rocm_findings
from hipwright.toolchain.amd.rocm_source import rocm_source
from tests.toolchain import nvrtc_calls

INCLUDES = ("hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "limits", "algorithm", "utility", "cmath")
SUPPORTED = [name for name in sets.NAMES if name != "debian-5.2"]
"""The rocm target needs ROCm 6; 5.2 lacks more (shuffles and maxima of half types, hip_bfloat16)."""


def refused(one: sets.HeaderSet, bodies: list[str]) -> dict[int, str]:
    """The bodies, by their number, that a set's headers refuse, with the first message of each."""
    head = "".join(f"#include <{name}>\n" for name in INCLUDES)
    kernels = (
        f'extern "C" __global__ void k{i}(void* q, float f, double d, int i, long long l) {{ {body} }}\n'
        for i, body in enumerate(bodies)
    )
    compiler = Hipcc(one, "gfx942")
    try:
        lines = compiler.errors_by_line(Source("own", "names", rocm_source(head + "".join(kernels), "kernel.hip"), ()))
    finally:
        compiler.close()
    return {line - len(INCLUDES) - 1: message for line, message in lines.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUPPORTED)
def test_what_amds_headers_lack_is_found_by_the_linter(name: str) -> None:
    one = sets.find()[name]
    if isinstance(one, str):
        pytest.skip(f"{name}: {one}")
    bodies = nvrtc_calls.bodies()
    found = refused(one, bodies)
    assert 20 < len(found) < len(bodies) // 4 and min(found) >= 0
    unseen = {bodies[at]: message for at, message in found.items() if not list(rocm_findings(bodies[at]))}
    assert unseen == {}


@pytest.mark.parametrize(
    "code",
    [
        "float v = atomicAdd(total, 1.0f);",
        "unsigned long long* seen; atomicAdd(seen, 1ull); atomicMax(&seen[3], 1ull);",
        "__shared__ float part[64]; float v = rsqrtf(x) + exp10f(x); v += __shfl_xor(v, warpSize / 2);",
        "#include <cfloat>\nfloat least = FLT_MAX;",
        "long n = 3; int count; atomicAdd(&count, 1);",
    ],
)
def test_what_they_have_is_not(code: str) -> None:
    assert list(rocm_findings(blank(code))) == []


def test_findings_say_what_to_write() -> None:
    ((at, said, fix),) = rocm_findings("int x;\n__half2* sums; atomicAdd(sums + 3, pair);")
    assert at == 21 + 1 and said == "ROCm has no atomicAdd for __half2" and "unsafeAtomicAdd" in fix
    assert not re.search(r"[{}]", said)
