"""Sides of the device headers: which ones a source can tell apart, and that each is compiled."""

from __future__ import annotations

import pytest

from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.cpu.sides import TargetSide, target_sides
from tests.engine.harness import CACHE

MMA, AMD_64, AMD_32, PLAIN_32 = (
    TargetSide(32, "nvidia"),
    TargetSide(64, "amd"),
    TargetSide(32, "amd"),
    TargetSide(32, ""),
)


@pytest.mark.parametrize(
    ("source", "sides"),
    [
        ("int a = warpSize;", ()),
        ("load_tile<1, 4>(x, 0, 4, n);", ()),
        ("vector_test_pays(n)", (AMD_32,)),
        ("is_vector_aligned<float, 4>(p) && warpSize == 64", (AMD_32, AMD_64, PLAIN_32)),
        ("#if GEMM_MFMA", (AMD_32, AMD_64)),
        ("#if GEMM_MMA", (MMA,)),
        ("#if GEMM_MFMA || GEMM_MMA", (MMA, AMD_64)),
        ("#if GEMM_MMA\n__shfl(x, 1)", (MMA, AMD_64, AMD_32)),
    ],
)
def test_the_sides_that_a_source_can_tell(source: str, sides: tuple[TargetSide, ...]) -> None:
    assert target_sides(source) == sides


@pytest.mark.parametrize(
    ("wave", "side", "values"),
    [(64, "", (0, 0, 2)), (32, "nvidia", (1, 0, 2)), (64, "amd", (0, 1, 1)), (32, "amd", (0, 0, 1))],
)
def test_a_build_compiles_its_side(wave: int, side: str, values: tuple[int, int, int]) -> None:
    mma, mfma, pitch = values
    source = (
        "#include <hipwright/matrix_cores.h>\n#include <hipwright/row_cache.h>\n#include <hipwright/tensor_cores.h>\n"
        f"static_assert(GEMM_MMA == {mma} && GEMM_MFMA == {mfma} && row_cache_pitch<2>() == {pitch});\n"
        'extern "C" __global__ void run(float* x) {\n    x[0] = 1.0f;\n}\n'
    )
    build = cpu.build(source, {}, wave=wave, side=side, checked=False, cache=CACHE, unsafe=True)  # type: ignore[arg-type]
    assert build.ok, build.log
