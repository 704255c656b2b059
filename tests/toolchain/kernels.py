"""Kernels of common kinds, for the build tests."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.targets import OFFLINE

HEAD = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n"

SAXPY = (
    HEAD
    + r"""
extern "C" __global__ void __launch_bounds__(BLOCK)
saxpy(float a, const float* __restrict__ x, float* __restrict__ y, long n) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
"""
)

SAXPY4 = (
    HEAD
    + r"""
extern "C" __global__ void saxpy4(float a, const float4* __restrict__ x, float4* __restrict__ y, long n) {
    long stride = (long)gridDim.x * blockDim.x;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] += a * x[i];
}
"""
)

SOFTMAX = (
    HEAD
    + r"""
#include <limits>
#include <algorithm>
template <class Op> __device__ float reduce(float v, Op op) {
    for (int o = warpSize / 2; o > 0; o >>= 1) v = op(v, __shfl_xor(v, o));
    return v;
}
__device__ float block_reduce(float v, float* lds, bool maximum) {
    auto op = [=](float a, float b) { return maximum ? fmaxf(a, b) : a + b; };
    v = reduce(v, op);
    __syncthreads();
    if (threadIdx.x % warpSize == 0) lds[threadIdx.x / warpSize] = v;
    __syncthreads();
    float r = lds[0];
    for (int i = 1; i < blockDim.x / warpSize; ++i) r = op(r, lds[i]);
    return r;
}
extern "C" __global__ void __launch_bounds__(256) softmax(const float* __restrict__ x, float* y, int n) {
    __shared__ float lds[16];
    const float* row = x + (long)blockIdx.x * n;
    float m = -std::numeric_limits<float>::infinity(), s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = std::max(m, row[i]);
    m = block_reduce(m, lds, true);
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += expf(row[i] - m);
    s = block_reduce(s, lds, false);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long)blockIdx.x * n + i] = __expf(row[i] - m) / s;
}
"""
)

HALF2 = (
    HEAD
    + r"""
extern "C" __global__ void half2_gelu(const __half2* x, const __half* bias, __half2* y, int n, half scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 v = __hadd2(x[i], __half2half2(bias[i & 7]));
    v = __hfma2(v, v, __float2half2_rn(0.5f)) * __halves2half2(scale, scale);
    float2 f = __half22float2(v);
    y[i] = __floats2half2_rn(f.x * 0.5f * (1.0f + erff(f.x * 0.70710678f)), tanhf(f.y)) + h2exp(v);
    if (__hgt(v.x, v.y) && __hisnan(v.x)) y[i].x = hsqrt(__hmax(v.x, (__half)1));
}
"""
)

BF16 = (
    HEAD
    + r"""
extern "C" __global__ void bf16_norm(const __hip_bfloat16* x, __hip_bfloat16* y, float eps, int n) {
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += __bfloat162float(x[i]) * (float)x[i];
    for (int o = warpSize / 2; o > 0; o /= 2) s += __shfl_down(s, o);
    __hip_bfloat16 r = __float2bfloat16(rsqrtf(__shfl(s, 0) / n + eps));
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = __hmul(x[i], r) + __hfma(x[i], r, r);
}
"""
)

ATOMICS = (
    HEAD
    + r"""
extern "C" __global__ void atomics(float* f, double* d, int* i, unsigned* u, unsigned long long* q, __half2* h) {
    __shared__ float local;
    __shared__ unsigned bins[64];
    extern __shared__ float dynamic[];
    if (threadIdx.x == 0) local = 0;
    bins[threadIdx.x & 63] = 0;
    __syncthreads();
    atomicAdd(&local, f[threadIdx.x]);
    atomicAdd(&bins[u[threadIdx.x] & 63], 1u);
    dynamic[threadIdx.x] = local;
    if (__syncthreads_count(f[threadIdx.x] > 0) > 3 || __syncthreads_or(i[0]) || __syncthreads_and(i[1])) {
        atomicAdd(f, dynamic[threadIdx.x ^ 1]);
        unsafeAtomicAdd(f + 1, 1.0f);
        atomicAdd(d, 1.0);
        atomicMax(f + 2, 3.0f), atomicMax(i, 4), atomicMin(u, 5u), atomicExch(i + 1, 6), atomicSub(i + 2, 7);
        atomicAnd(u + 1, 8u), atomicOr(u + 2, 9u), atomicXor(u + 3, 10u), atomicInc(u + 4, 11u), atomicAdd(q, 12ull);
        atomicCAS(i + 3, 13, 14), atomicAdd(h, __half2(1.0f, 2.0f)), __threadfence();
    }
    u[5] = __popcll(__ballot(i[4] > 0)) + __any(i[5]) + __all(i[6]) + __ffs(i[7]) + __clz(i[8]) + __brev(u[6]);
    assert(i[9] != 77);
    printf("ignored %d\n", i[9]);
}
"""
)

MFMA = (
    HEAD
    + r"""
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
extern "C" __global__ void __launch_bounds__(64) mfma(const half4* a, const half4* b, float16* c, int k) {
    float16 acc = {};
    for (int i = 0; i < k; ++i)
        acc = __builtin_amdgcn_mfma_f32_32x32x8f16(a[i * 64 + threadIdx.x], b[i * 64 + threadIdx.x], acc, 0, 0, 0);
    c[threadIdx.x] = acc;
}
"""
)

BIG_TILES = (
    HEAD
    + r"""
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
extern "C" __global__ void __launch_bounds__(256) tiles(const half4* a, const half4* b, float16* c, int k) {
    float16 acc[20] = {};
    for (int i = 0; i < k; ++i)
        for (int j = 0; j < 20; ++j)
            acc[j] = __builtin_amdgcn_mfma_f32_32x32x8f16(a[i * 64 + threadIdx.x], b[i * 64 + j], acc[j], 0, 0, 0);
    for (int j = 0; j < 20; ++j) c[threadIdx.x + 64 * j] = acc[j];
}
"""
)

DOUBLES = (
    HEAD
    + r"""
#include <cmath>
extern "C" __global__ void doubles(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s, c;
    sincos(x[i], &s, &c);
    x[i] = std::exp(s) + pow(fabs(c), 1.5) + log1p(s * s) + erf(c) + tgamma(s + 2.0) + fmod(c, 0.3) + std::sqrt(2);
}
"""
)

SPILLS = (
    HEAD
    + r"""
extern "C" __global__ void __launch_bounds__(1024) spills(const float* a, float* c, int n) {
    float v[150];
    for (int i = 0; i < 150; ++i) v[i] = a[threadIdx.x + i * n];
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int i = 0; i < 150; ++i) v[i] = v[i] * v[(i * 7) % 150] + v[(i + 1) % 150];
    for (int i = 0; i < 150; ++i) c[threadIdx.x + i * n] = v[i];
}
"""
)

STACK = (
    HEAD
    + r"""
__device__ __noinline__ float pick(const float* x, int n) {
    float a[32];
    for (int i = 0; i < 32; ++i) a[i] = x[i] * i;
    return a[n & 31];
}
extern "C" __global__ void stack(float* x, int n) { x[threadIdx.x] = pick(x, n + threadIdx.x); }
"""
)

LDS = (
    HEAD
    + r"""
extern "C" __global__ void __launch_bounds__(256) transpose(const float* x, float* y, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int c = threadIdx.x % TILE;
    for (int r = threadIdx.x / TILE; r < TILE; r += 256 / TILE) tile[r][c] = x[r * n + c];
    __syncthreads();
    for (int r = threadIdx.x / TILE; r < TILE; r += 256 / TILE) y[r * n + c] = tile[c][r];
}
"""
)

SHUFFLES = (
    HEAD
    + r"""
template <class T> __device__ T all_ways(T v) {
    return __shfl(v, 3) + __shfl_up(v, 1u) + __shfl_down(v, 1u, 16) + __shfl_xor(v, 2);
}
extern "C" __global__ void shuffles(int* i, unsigned* u, long long* l, float* f, double* d, half* h,
                                    __hip_bfloat16* b) {
    int t = threadIdx.x;
    i[t] = all_ways(i[t]), u[t] = all_ways(u[t]), l[t] = all_ways(l[t]), f[t] = all_ways(f[t]), d[t] = all_ways(d[t]);
    h[t] = all_ways(h[t]), b[t] = all_ways(b[t]);
    if (__activemask() == ~0ull) i[t] += __lane_id() + warpSize;
}
"""
)

EVERYWHERE = {
    "saxpy": SAXPY,
    "saxpy4": SAXPY4,
    "softmax": SOFTMAX,
    "half2_gelu": HALF2,
    "bf16_norm": BF16,
    "atomics": ATOMICS,
    "doubles": DOUBLES,
    "spills": SPILLS,
    "stack": STACK,
    "transpose": LDS,
    "shuffles": SHUFFLES,
}
WITH_MFMA = {"mfma": MFMA, "tiles": BIG_TILES}
DEFINES = {"BLOCK": 256, "TILE": 32}


def pairs(*names: str) -> list[Any]:
    """Every kernel for every target; half of the targets only in the long run, as gfx942 represents its relatives."""
    long_run = {"gfx90a": [pytest.mark.slow], "gfx950": [pytest.mark.slow]}
    return [pytest.param(name, target, marks=long_run.get(target, [])) for name in names for target in OFFLINE]
