"""Wrong translations of the clang that hipwright ships, found by generated kernels: the machine code itself is wrong.

Each differs from the source on any GPU. A test that fails tells that the compiler is another one, and that
docs/sim-target.md says what is no longer true.
"""

from __future__ import annotations

import pytest

from benchmarks.simulated.kernel_judge import KernelJudge
from benchmarks.simulated.kernel_text import GeneratedKernel, Statement
from hipwright import config
from hipwright.toolchain.cache import BuildCache

FOUND: dict[str, tuple[Statement, ...]] = {
    # v_or_b32 of -1 becomes v_mov_b32 of the other operand: the high word is that of the product
    "OR with ones": (
        (
            "for (k0 = 0; k0 < ((~(u32)(int)(short)xs[i0 & 1023u]) & 7u); ++k0)",
            ("l0 = ((~(u64)__clzll((long long)l1)) | __umul64hi((~l0), (~l0)));",),
        ),
    ),
    # lanes leave the loop after different turns, and all get the counter of the last one
    "a counter behind a loop": (
        (
            "if ((((int)i1 >= (int)i0) || (f0 < f1)))",
            (("for (k1 = 0; k1 < ((((u64)i3 < (u64)(long long)(int)i0) ? k1 : i1) & 7u); ++k1)", ()),),
        ),
        (
            "for (k0 = 0; k0 < ((at * xi[i3 & 1023u]) & 7u); ++k0)",
            (
                (
                    "if (((int)to_int(-0.5f) >= (int)(u32)(int)(signed char)(u32)xb[i2 & 1023u]))",
                    ("i1 = (0u - ((u32)xb[i1 & 1023u] * (i2 - k1)));",),
                ),
            ),
        ),
    ),
    # behind joined conditions the block that negates is empty
    "a choice of signs": (
        "h0 = add((((t[i2 & 7u] != i2) && (2147483647u >= xi[i1 & 1023u])) ? h1 : (f16)(- h1)), "
        "add((f16)(- to_half(in_half(f1))), multiply(h0, to_half(in_half(f1)))));",
        "atomicXor(&counters[64 + (min(at, i0) & 15u)], "
        "(~(u32)((int)i1 / (int)(((u32)xb[i1 & 1023u] & 32767u) | 1u))));",
    ),
    # a product that is rounded to a half is v_fma_mixlo_f16 with +0: -0 becomes 0
    "the sign of a zero": ("h0 = to_half(3.0e-39f * f2);",),
}


@pytest.mark.parametrize("name", FOUND)
def test_machine_code_that_is_wrong(name: str) -> None:
    cache = BuildCache(config.cache_dir())
    judge = KernelJudge("gfx942@sim", cache, cache)
    verdict = judge.judged([GeneratedKernel("k0", FOUND[name], 256, 2)])[0]
    assert verdict.status == ("zero's sign" if name == "the sign of a zero" else "differs"), verdict
