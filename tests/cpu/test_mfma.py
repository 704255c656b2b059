# ruff: noqa: E501 - small kernels read best in one line
"""The matrix instructions against AMD's published layouts, element by element, and a whole product against NumPy.

The facts below are AMD's, restated: the formulas that its Matrix Instruction Calculator (github.com/ROCm/
amd_matrix_instruction_calculator: README.md and the *_eqn functions of matrix_calculator.py) prints for each
instruction, as (lane, item) with item = index among the lane's own elements. For the doubled k of gfx950 (8 consecutive
k a lane) the source is the register map of AMD engineer Carlus Huang's matrix_core_gfx950 example (github.com/
carlushuang/gcnasm), which runs on that GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hipwright.errors import CandidateError


@dataclass(frozen=True)
class Instruction:
    name: str
    m: int
    k: int
    blocks: int
    a: str
    b: str
    d: str


def parse(name: str, blocks: int = 1, a: str = "", b: str = "", d: str = "float32") -> Instruction:
    m, k = re.findall(r"_(\d+)x\d+x(\d+)", name)[0]
    return Instruction(name, int(m), int(k), blocks, a, b or a, d)


INSTRUCTIONS = [
    *(
        parse(n, bl, "float32")
        for n, bl in [
            ("f32_32x32x1f32", 2),
            ("f32_16x16x1f32", 4),
            ("f32_4x4x1f32", 16),
            ("f32_32x32x2f32", 1),
            ("f32_16x16x4f32", 1),
        ]
    ),
    *(
        parse(n, bl, "float16")
        for n, bl in [
            ("f32_32x32x4f16", 2),
            ("f32_16x16x4f16", 4),
            ("f32_4x4x4f16", 16),
            ("f32_32x32x8f16", 1),
            ("f32_16x16x16f16", 1),
            ("f32_32x32x16_f16", 1),
            ("f32_16x16x32_f16", 1),
        ]
    ),
    *(
        parse(n, bl, "bfloat16")
        for n, bl in [
            ("f32_32x32x4bf16_1k", 2),
            ("f32_16x16x4bf16_1k", 4),
            ("f32_4x4x4bf16_1k", 16),
            ("f32_32x32x8bf16_1k", 1),
            ("f32_16x16x16bf16_1k", 1),
            ("f32_32x32x16_bf16", 1),
            ("f32_16x16x32_bf16", 1),
        ]
    ),
    parse("f64_16x16x4f64", 1, "float64", d="float64"),
    parse("f64_4x4x4f64", 4, "float64", d="float64"),
    *(
        parse(f"i32_{n}", 1, "int8", d="int32")
        for n in ("32x32x16_i8", "16x16x32_i8", "32x32x8i8", "16x16x16i8", "32x32x32_i8", "16x16x64_i8")
    ),
    *(
        parse(f"f32_{s}_{a}_{b}", 1, a, b)
        for s in ("32x32x16", "16x16x32")
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
    ),
]


# ---- the published places: (block, row or column, k) -> (lane, item)


def input_place(x: Instruction, block: int, row: int, k: int) -> tuple[int, int]:
    run = x.m * x.k * x.blocks // 64  # consecutive k held by one lane
    lane = (x.m * block if x.blocks > 1 else 0) + row
    if x.m * x.blocks < 64:
        lane += x.m * x.blocks * (k // run)
    return lane, k % run


def output_place(x: Instruction, block: int, i: int, j: int) -> tuple[int, int]:
    if x.d == "float64":
        return 16 * (i % 4) + (4 * block if x.m == 4 else 0) + j, i // 4
    if x.m == 4:
        return 4 * block + j, i
    if x.m == 16:
        return 16 * (i // 4) + j, (4 * block if x.blocks == 4 else 0) + i % 4
    return (32 * (i // 4)) % 64 + j, (16 * block if x.blocks == 2 else 0) + 4 * (i // 8) + i % 4


def test_single_facts_of_the_calculators_readme() -> None:
    by_name = {x.name: x for x in INSTRUCTIONS}
    half = by_name["f32_4x4x4f16"]
    assert input_place(half, 4, 1, 2) == (17, 2)  # v1{17}.[15:0] = A[1][2].B4
    assert input_place(half, 4, 1, 3) == (17, 3)  # v1{17}.[31:16] = A[1][3].B4
    assert output_place(half, 8, 2, 1) == (33, 2)  # v2{33} = D[2][1].B8
    double = by_name["f64_4x4x4f64"]
    assert output_place(double, 0, 1, 0) == (16, 0)  # v[1:0]{16} = D[1][0].B0
    assert output_place(double, 2, 3, 3) == (59, 0)  # v[1:0]{59} = D[3][3].B2


# ---- the emulation

ITEM = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "fp8": 1, "bf8": 1, "int32": 4}
VECTOR = {4: "float", 8: "long", 16: "double __attribute__((ext_vector_type(2)))"}


def source(instructions: list[Instruction]) -> str:
    kernels = []
    for x in instructions:
        a_bytes, b_bytes = (x.m * x.k * x.blocks // 64 * ITEM[t] for t in (x.a, x.b))
        d_count = x.m * x.m * x.blocks // 64
        d_type = {"float32": "float", "float64": "double", "int32": "int"}[x.d]
        kernels.append(
            f"""
        typedef {d_type} D_{x.name} __attribute__((ext_vector_type({d_count})));
        typedef {VECTOR[a_bytes].replace(" __", f" A_{x.name} __") if "__" in VECTOR[a_bytes] else f"{VECTOR[a_bytes]} A_{x.name}"};
        extern "C" __global__ void k_{x.name}(const unsigned char* a, const unsigned char* b, const {d_type}* c, {d_type}* d) {{
            A_{x.name} x = ((const A_{x.name}*)a)[threadIdx.x], y = ((const A_{x.name}*)b)[threadIdx.x];
            D_{x.name} z; for (int i = 0; i < {d_count}; i++) z[i] = c[threadIdx.x * {d_count} + i];
            z = __builtin_amdgcn_mfma_{x.name}(x, y, z, 0, 0, 0);
            for (int i = 0; i < {d_count}; i++) d[threadIdx.x * {d_count} + i] = z[i];
        }}"""
            if d_count > 1
            else f"""
        extern "C" __global__ void k_{x.name}(const unsigned char* a, const unsigned char* b, const {d_type}* c, {d_type}* d) {{
            d[threadIdx.x] = __builtin_amdgcn_mfma_{x.name}(((const double*)a)[threadIdx.x], ((const double*)b)[threadIdx.x], c[threadIdx.x], 0, 0, 0);
        }}"""
        )
        assert a_bytes == b_bytes
    return "\n".join(kernels)


SOURCE = source(INSTRUCTIONS)


def small_fp8(kind: str, codes: np.ndarray) -> np.ndarray:
    """The FNUZ kinds of gfx942, read off their definition: bias 8 with 3 mantissa bits, bias 16 with 2."""
    bits, bias = (3, 8) if kind == "fp8" else (2, 16)
    exponent, mantissa = (codes & 0x7F) >> bits, codes & ((1 << bits) - 1)
    value = np.where(
        exponent > 0, (1 + mantissa / 2**bits) * 2.0 ** (exponent - bias), mantissa / 2**bits * 2.0 ** (1 - bias)
    )
    return np.where(codes & 0x80, -value, value)


def random_matrix(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(stored bits, values); small integers where they are exact, so that the sum's order cannot matter."""
    if kind in ("fp8", "bf8"):
        codes = rng.choice(
            [0x00, 0x38, 0x40, 0x44, 0xC0, 0x48, 0xB8] if kind == "fp8" else [0x00, 0x40, 0x44, 0x48, 0xC4], shape
        )
        return codes.astype(np.uint8), small_fp8(kind, codes)
    values = rng.integers(-8, 9, shape).astype(np.float64)
    if kind == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    return values.astype(kind), values


@pytest.mark.parametrize("x", INSTRUCTIONS, ids=lambda x: x.name)
def test_every_element_is_where_amd_says(gpu, x: Instruction) -> None:
    rng = np.random.default_rng(3)
    (a_bits, a), (b_bits, b) = (random_matrix(t, (x.blocks, x.m, x.k), rng) for t in (x.a, x.b))
    c = rng.integers(-50, 50, (x.blocks, x.m, x.m)).astype(np.float64)
    run, d_count = x.m * x.k * x.blocks // 64, x.m * x.m * x.blocks // 64
    registers = [np.zeros((64, run), bits.dtype) for bits in (a_bits, b_bits)]
    for block, row, k in np.ndindex(x.blocks, x.m, x.k):
        for register, bits in zip(registers, (a_bits, b_bits), strict=True):
            register[input_place(x, block, row, k)] = bits[block, row, k]
    held = np.zeros((64, d_count), x.d)
    for block, i, j in np.ndindex(x.blocks, x.m, x.m):
        held[output_place(x, block, i, j)] = c[block, i, j]
    d = torch.zeros(64, d_count, dtype=getattr(torch, x.d))
    inputs = [torch.from_numpy(np.ascontiguousarray(r).view(np.uint8)) for r in registers]
    gpu.run(SOURCE, f"k_{x.name}", 1, 64, [*inputs, torch.from_numpy(held), d])
    expected = np.einsum("bik,bjk->bij", a, b) + c
    got = np.array([d[output_place(x, *at)].item() for at in np.ndindex(x.blocks, x.m, x.m)]).reshape(expected.shape)
    np.testing.assert_array_equal(got, expected)


MATMUL = r"""
typedef _Float16 half4_t __attribute__((ext_vector_type(4)));
typedef float float4_t __attribute__((ext_vector_type(4)));
extern "C" __global__ void matmul(const half* a, const half* b, float* c, int n) {   // one wave a 16x16 tile
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 16;
    float4_t acc = {0, 0, 0, 0};
    for (int k = 0; k < n; k += 16) {
        half4_t x, y;
        for (int i = 0; i < 4; i++) {
            int kk = k + 4 * (lane / 16) + i;
            x[i] = (_Float16)a[(row + lane % 16) * n + kk];
            y[i] = (_Float16)b[kk * n + column + lane % 16];
        }
        acc = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, acc, 0, 0, 0);
    }
    for (int i = 0; i < 4; i++) c[(row + 4 * (lane / 16) + i) * n + column + lane % 16] = acc[i];
}
extern "C" __global__ void diverged(float* c) {
    float4_t acc = {0, 0, 0, 0};
    half4_t x = {1, 1, 1, 1};
    if (threadIdx.x < 32) acc = __builtin_amdgcn_mfma_f32_16x16x16f16(x, x, acc, 0, 0, 0);
    c[threadIdx.x] = acc[0];
}
extern "C" __global__ void modified(float* c) {
    float4_t acc = {0, 0, 0, 0};
    half4_t x = {1, 1, 1, 1};
    acc = __builtin_amdgcn_mfma_f32_16x16x16f16(x, x, acc, 0, 0, 1);
    c[threadIdx.x] = acc[0];
}
"""


@pytest.mark.parametrize("checked", [False, True])
def test_a_whole_product(gpu, checked: bool) -> None:
    n = 96
    a, b, c = torch.randn(n, n).half(), torch.randn(n, n).half(), torch.zeros(n, n)
    stats = gpu.run(MATMUL, "matmul", (n // 16, n // 16), 64, [a, b, c, n], checked=checked, order="shuffle").stats()[0]
    np.testing.assert_allclose(c.numpy(), a.double().numpy() @ b.double().numpy(), rtol=0, atol=2e-5)
    assert stats["wave_ops"] == (n // 16) ** 3


@pytest.mark.parametrize(("kernel", "word"), [("diverged", "all 64 lanes"), ("modified", "modifier")])
def test_what_is_not_emulated_says_so(gpu, kernel: str, word: str) -> None:
    with pytest.raises(CandidateError, match=word) as caught:
        gpu.run(MATMUL, kernel, 1, 64, [torch.zeros(64)])
    assert caught.value.status == "launch_error"
