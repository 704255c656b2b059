// Products of 16 rows of a matrix that is unpacked in registers with 8 or 16 vectors, by one wavefront.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/matrix_cores.h>
#include <hipwright/tensor_cores.h>

// The order of summation is free: a lane's W neighbouring numbers along k stand for whatever k the unit gives that lane,
// so rows and vectors go from memory to the unit's operands without LDS. Four lanes, the quarters, share a row.

// Whether products are made so: not on AMD GPUs without MFMA, where shuffles would take their place.
#if GEMM_MFMA || !defined(__AMDGCN__)
#define SKINNY_UNITS 1
#else
#define SKINNY_UNITS 0
#endif

// Lanes that work together, vectors of a tile, and rows of the tile's 16 of which a lane holds a quarter: a wave of 64
// with MFMA, else 32 lanes as mma.m16n8k16 has them (without tensor cores its sums are made with shuffles).
constexpr int SKINNY_LANES = GEMM_MFMA ? 64 : 32, SKINNY_VECTORS = GEMM_MFMA ? 16 : 8, SKINNY_ROWS = GEMM_MFMA ? 1 : 2;

// What lane holds of the operands: its row number r of the tile, its vector, and which quarter of the k of both.
__device__ __forceinline__ int skinny_row(int lane, int r) {
    return GEMM_MFMA ? lane % 16 : lane / 4 + 8 * r;
}
__device__ __forceinline__ int skinny_vector(int lane) {
    return GEMM_MFMA ? lane % 16 : lane / 4;
}
__device__ __forceinline__ int skinny_quarter(int lane) {
    return GEMM_MFMA ? lane / 16 : lane % 4;
}

// The row and the vector of a lane's sum number i of 4.
__device__ __forceinline__ int skinny_sum_row(int lane, int i) {
    return GEMM_MFMA ? lane / 16 * 4 + i : lane / 4 + i / 2 * 8;
}
__device__ __forceinline__ int skinny_sum_vector(int lane, int i) {
    return GEMM_MFMA ? lane % 16 : lane % 4 * 2 + i % 2;
}

#if GEMM_MFMA
__device__ __forceinline__ Accumulator skinny_step(const __half* a, const __half* b, Accumulator c) {
    HalfFragment x, y;
    __builtin_memcpy(&x, a, 8);
    __builtin_memcpy(&y, b, 8);
    return matrix_product(x, y, c);
}
__device__ __forceinline__ Accumulator skinny_step(const __hip_bfloat16* a, const __hip_bfloat16* b, Accumulator c) {
    BfloatFragment x, y;
    __builtin_memcpy(&x, a, 8);
    __builtin_memcpy(&y, b, 8);
    return matrix_product(x, y, c);
}
__device__ __forceinline__ Accumulator skinny_step(const float* a, const float* b, Accumulator c) {
    return __builtin_amdgcn_mfma_f32_16x16x4f32(*a, *b, c, 0, 0, 0);
}
#else
__device__ __forceinline__ void skinny_step(const __half*, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                            unsigned b1, int lane) {
    mma_m16n8k16_half(c[0], c[1], c[2], c[3], a, b0, b1, lane);
}
__device__ __forceinline__ void skinny_step(const __hip_bfloat16*, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                            unsigned b1, int lane) {
    mma_m16n8k16_bfloat(c[0], c[1], c[2], c[3], a, b0, b1, lane);
}
#endif

#if !GEMM_MFMA
// x = high + low: the upper 11 bits of a float, and the rest rounded to 11 bits, of which the unit takes the upper ones.
// The low part of what is not finite is zero.
__device__ __forceinline__ void tf32_parts(float x, float& high, float& low) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    bits &= 0xffffe000u;
    __builtin_memcpy(&high, &bits, 4);
    const float rest = x - high;
    __builtin_memcpy(&bits, &rest, 4);
    bits += 0x1000u;
    __builtin_memcpy(&low, &bits, 4);
    low = __builtin_fabsf(x) <= 3.402823466e38f ? low : 0.0f;
}
#endif

// sum += the product of W numbers of each lane's rows and vector, W a multiple of 4. All lanes take part.
template <int W, typename T>
__device__ __forceinline__ void skinny_multiply(float (&sum)[4], const T (&rows)[SKINNY_ROWS][W], const T (&vector)[W],
                                                int lane) {
#if GEMM_MFMA
    Accumulator c = {sum[0], sum[1], sum[2], sum[3]};
#pragma unroll
    for (int q = 0; q < W; q += sizeof(T) == 4 ? 1 : 4) c = skinny_step(rows[0] + q, vector + q, c);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = c[i];
#else
#pragma unroll
    for (int q = 0; q < W; q += 4) {
        unsigned upper[2], lower[2], other[2];
        __builtin_memcpy(upper, rows[0] + q, 8);
        __builtin_memcpy(lower, rows[SKINNY_ROWS - 1] + q, 8);
        __builtin_memcpy(other, vector + q, 8);
        const unsigned a[4] = {upper[0], lower[0], upper[1], lower[1]};
        skinny_step((const T*)nullptr, sum, a, other[0], other[1], lane);
    }
#endif
}

#if !GEMM_MFMA
// The same of floats: three products of their parts of 11 bits, which TF32 holds with the range of a float. Matrix units
// add roughly, so each call begins a sum of its own.
template <int W>
__device__ __forceinline__ void skinny_multiply(float (&sum)[4], const float (&rows)[2][W], const float (&vector)[W],
                                                int lane) {
    float part[4] = {};
#pragma unroll
    for (int q = 0; q < W; q += 2) {
        float high[4], low[4], high_b[2], low_b[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) tf32_parts(rows[i % 2][q + i / 2], high[i], low[i]);
#pragma unroll
        for (int i = 0; i < 2; ++i) tf32_parts(vector[q + i], high_b[i], low_b[i]);
        mma_m16n8k8_tf32(part, low, high_b[0], high_b[1], lane);
        mma_m16n8k8_tf32(part, high, low_b[0], low_b[1], lane);
        mma_m16n8k8_tf32(part, high, high_b[0], high_b[1], lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
}
#endif
