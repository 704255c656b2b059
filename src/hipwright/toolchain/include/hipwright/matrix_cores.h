// Whether products use AMD's matrix units (MFMA), and the types of their operands.
#pragma once
#include <hip/hip_runtime.h>

// GEMM_MFMA is 1 on the architectures that have them.
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || (defined(HW_AMD_SIDE) && HW_WAVE == 64)
#define GEMM_MFMA 1
using Accumulator = float __attribute__((ext_vector_type(4)));
using HalfFragment = _Float16 __attribute__((ext_vector_type(4)));
using BfloatFragment = short __attribute__((ext_vector_type(4)));

// A lane's part of an operand of a 16 x 16 product, K deep, 16 or 32: row (column) lane % 16, and K / 4 neighbouring k
// from K / 4 * (lane / 16) on.
template <int K>
using HalfFragments = _Float16 __attribute__((ext_vector_type(K / 4)));
template <int K>
using BfloatFragments = short __attribute__((ext_vector_type(K / 4)));

// gfx950 multiplies 32 of k by one instruction; others take two, of half a lane's elements each.
#if defined(__gfx950__) && __has_builtin(__builtin_amdgcn_mfma_f32_16x16x32_f16)
#define GEMM_MFMA_WIDE 1
#else
#define GEMM_MFMA_WIDE 0
#endif

__device__ __forceinline__ Accumulator matrix_product(HalfFragment a, HalfFragment b, Accumulator c) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}

__device__ __forceinline__ Accumulator matrix_product(BfloatFragment a, BfloatFragment b, Accumulator c) {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
}

__device__ __forceinline__ Accumulator matrix_product(HalfFragments<32> a, HalfFragments<32> b, Accumulator c) {
#if GEMM_MFMA_WIDE
    return __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0);
#else
    return matrix_product(a.hi, b.hi, matrix_product(a.lo, b.lo, c));
#endif
}

__device__ __forceinline__ Accumulator matrix_product(BfloatFragments<32> a, BfloatFragments<32> b, Accumulator c) {
#if GEMM_MFMA_WIDE
    using Numbers = __bf16 __attribute__((ext_vector_type(8)));
    Numbers x, y;
    __builtin_memcpy(&x, &a, sizeof(x));
    __builtin_memcpy(&y, &b, sizeof(y));
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, c, 0, 0, 0);
#else
    return matrix_product(a.hi, b.hi, matrix_product(a.lo, b.lo, c));
#endif
}
#else
#define GEMM_MFMA 0
#endif
