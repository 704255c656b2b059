# ruff: noqa: E501 - small kernels read best in one line
"""An access at an address that is not a multiple of what its type promises is refused, as NVIDIA's GPUs do."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError

TYPES = r"""
struct alignas(16) Pack { float v[4]; };
struct alignas(8) HalfPack { __half v[4]; };
extern "C" __global__ void load_float4(const float* x, float* y, int shift) { float4 v = *reinterpret_cast<const float4*>(x + shift); y[0] = v.x + v.w; }
extern "C" __global__ void store_float4(const float* x, float* y, int shift) { *reinterpret_cast<float4*>(y + shift) = float4{x[0], x[1], x[2], x[3]}; }
extern "C" __global__ void load_pack(const float* x, float* y, int shift) { Pack p = *reinterpret_cast<const Pack*>(x + shift); for (int i = 0; i < 4; i++) y[i] = p.v[i]; }
extern "C" __global__ void copy_pack(const float* x, float* y, int shift) { *reinterpret_cast<Pack*>(y) = *reinterpret_cast<const Pack*>(x + shift); }
extern "C" __global__ void int4_of_floats(const float* x, float* y, int shift) { int4 v = reinterpret_cast<const int4*>(x + shift)[0]; y[0] = __int_as_float(v.x ^ v.w); }
extern "C" __global__ void double2_of_floats(const float* x, float* y, int shift) { double2 v = reinterpret_cast<const double2*>(x + shift)[0]; y[0] = (float)v.y; }
extern "C" __global__ void eight_byte_atomic(const float* x, float* y, int shift) { atomicAdd(reinterpret_cast<unsigned long long*>(y + shift), 1ull); }
extern "C" __global__ void in_lds(const float* x, float* y, int shift) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x % 8];
    __syncthreads();
    const float2* p = reinterpret_cast<const float2*>(s + shift);
    float2 v = *p; y[0] = v.x * v.y;
}
"""
VECTORS = [
    "load_float4",
    "store_float4",
    "load_pack",
    "copy_pack",
    "int4_of_floats",
    "double2_of_floats",
    "eight_byte_atomic",
    "in_lds",
]


@pytest.mark.parametrize("kernel", VECTORS)
def test_an_odd_offset_is_refused_and_an_even_one_is_not(gpu, kernel: str) -> None:
    x, y = torch.arange(8.0), torch.zeros(8)
    gpu.run(TYPES, kernel, 1, 1, [x, y, 0], checked=True)
    gpu.run(TYPES, kernel, 1, 1, [x, y, 4], checked=True)
    with pytest.raises(CandidateError) as caught:
        gpu.run(TYPES, kernel, 1, 1, [x, y, 1], checked=True)
    error = caught.value
    assert error.status == "out_of_bounds"
    assert "misaligned access" in error.message and "multiple of 4 only" in error.message
    assert error.evidence["line"] > 0
    assert "argument" in error.evidence or error.evidence["buffer"] == "LDS"


def test_no_access_is_wider_than_16_bytes(gpu) -> None:
    source = r"""extern "C" __global__ void k(const double4* x, double4* y) { y[threadIdx.x] = x[threadIdx.x]; }"""
    for shift in range(2):  # HIP aligns double4 to 32 bytes, CUDA and every access to 16
        x, y = torch.randn(12, dtype=torch.float64)[2 * shift :][:8], torch.zeros(8, dtype=torch.float64)
        gpu.run(source, "k", 1, 2, [x, y], checked=True)
        assert torch.equal(x, y)


def test_halves_at_an_odd_element(gpu) -> None:
    source = r"""extern "C" __global__ void k(const __half* x, __half* y, int shift) { __half2 v = *reinterpret_cast<const __half2*>(x + shift); y[0] = v.x; y[1] = v.y; }"""
    x, y = torch.arange(8.0).half(), torch.zeros(8).half()
    gpu.run(source, "k", 1, 1, [x, y, 2], checked=True)
    assert y[:2].tolist() == [2.0, 3.0]
    with pytest.raises(CandidateError, match="4 bytes at an address that is a multiple of 2 only"):
        gpu.run(source, "k", 1, 1, [x, y, 3], checked=True)


GUARDED = r"""
extern "C" __global__ void tested(const float* x, float* y, int n) {
    const bool aligned = (((unsigned long long)x | (unsigned long long)y) & 15) == 0;
    int i = threadIdx.x, vectors = aligned ? n / 4 : 0;
    for (int k = i; k < vectors; k += blockDim.x) reinterpret_cast<float4*>(y)[k] = reinterpret_cast<const float4*>(x)[k];
    for (int k = 4 * vectors + i; k < n; k += blockDim.x) y[k] = x[k];
}
extern "C" __global__ void peeled(const float* x, float* y, int n) {
    int head = (int)((16 - ((unsigned long long)x & 15)) / 4 % 4), vectors = (n - head) / 4;
    for (int k = threadIdx.x; k < head; k += blockDim.x) y[k] = x[k];
    for (int k = threadIdx.x; k < vectors; k += blockDim.x) {
        float4 v = reinterpret_cast<const float4*>(x + head)[k];
        y[head + 4 * k] = v.x; y[head + 4 * k + 1] = v.y; y[head + 4 * k + 2] = v.z; y[head + 4 * k + 3] = v.w;
    }
    for (int k = head + 4 * vectors + threadIdx.x; k < n; k += blockDim.x) y[k] = x[k];
}
extern "C" __global__ void copied(const float* x, float* y, int n) {
    struct Pack { float v[4]; } pack;
    for (int k = threadIdx.x; k < n / 4; k += blockDim.x) { __builtin_memcpy(&pack, x + 4 * k, 16); __builtin_memcpy(y + 4 * k, &pack, 16); }
    for (int k = n / 4 * 4 + threadIdx.x; k < n; k += blockDim.x) y[k] = x[k];
}
"""


@pytest.mark.parametrize("kernel", ["tested", "peeled", "copied"])
def test_packs_behind_an_address_test_pass_everywhere(gpu, kernel: str) -> None:
    base = torch.randn(70)
    for shift in range(5):
        x, y = base[shift : shift + 63], torch.zeros(70)[shift : shift + 63]
        gpu.run(GUARDED, kernel, 1, 32, [x, y, 63], checked=True)
        assert torch.equal(x, y)
