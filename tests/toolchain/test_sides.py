"""Sides of the device headers: which ones a source can tell apart, and that each is compiled."""

from __future__ import annotations

import pytest

from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.cpu.sides import CDNA, NVIDIA, RDNA, TargetSide, sides_to_build, target_sides
from tests.engine.harness import CACHE

BOTH = (CDNA, NVIDIA)


@pytest.mark.parametrize(
    ("source", "sides"),
    [
        ("int a = warpSize;", ()),
        ("load_tile<1, 4>(x, 0, 4, n);", ()),
        ("vector_test_pays(n)", BOTH),
        ("is_vector_aligned<float, 4>(p) && warpSize == 64", (*BOTH, RDNA)),
        ("#if GEMM_MFMA", BOTH),
        ("#if GEMM_MFMA\n__shfl(x, 1)", BOTH),
        ("#if GEMM_MMA", BOTH),
        ("#if GEMM_MFMA || GEMM_MMA", BOTH),
        ("#if GEMM_MMA\n__shfl(x, 1)", (*BOTH, RDNA)),
        ("#if GEMM_MFMA\nif (ROW_CACHE)", (*BOTH, RDNA)),
    ],
)
def test_the_sides_that_a_source_can_tell(source: str, sides: tuple[TargetSide, ...]) -> None:
    assert target_sides(source) == sides


def test_every_side_that_a_source_can_tell_is_built_checked_once() -> None:
    """The builds of the first side are those that all stages run; matrix units are emulated too slowly for that."""
    kinds = ((64, True), (64, False))
    assert sides_to_build("vector_test_pays(n)", kinds, every=True) == (dict.fromkeys(kinds, "amd"), (NVIDIA,))
    assert sides_to_build("#if GEMM_MFMA", kinds, every=True) == ({(64, True): "amd", (64, False): ""}, (NVIDIA,))
    assert sides_to_build("warpSize", kinds, every=True) == (dict.fromkeys(kinds, ""), ())
    assert sides_to_build("#if GEMM_MFMA", kinds, every=False)[1] == ()
    small = ((32, True), (32, False))
    assert sides_to_build("#if GEMM_MMA", small, every=True) == (dict.fromkeys(small, "nvidia"), (CDNA,))


def test_a_wave_that_is_built_for_information_gives_way_to_a_side() -> None:
    kinds = ((32, True), (64, True), (64, False))
    assert (32, True) in sides_to_build("warpSize", kinds, every=True)[0]
    assert (32, True) not in sides_to_build("#if GEMM_MFMA", kinds, every=True)[0]


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
