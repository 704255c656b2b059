// Products for attention by tensor cores: of floats in three bfloat16 parts, of half types as they are.
#pragma once
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <hipwright/bfloat16_type.h>
#include <hipwright/tensor_cores.h>

// Three parts are 24 bits and have the range of floats, so that nothing is scaled. The products of high parts are added as
// floats 16 at a time, as tensor cores round long sums toward zero; the others are 2^-8 of them and stay in one sum.

// The bits of a pair of values of a half type, x lowest.
template <typename T>
__device__ __forceinline__ unsigned pair_bits(float x, float y, T) {
    const T pair[2] = {T(x), T(y)};
    unsigned bits;
    __builtin_memcpy(&bits, pair, 4);
    return bits;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ unsigned pair_bits(float x, float y, __half) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
    return bits;
}

__device__ __forceinline__ unsigned pair_bits(float x, float y, __hip_bfloat16) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
    return bits;
}
#endif

// 2^x in one instruction where there is one: results below 2^-126 may be 0.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// x, y as the sum of PARTS pairs of T, the largest first. A number that is not finite has other parts.
template <typename T, int PARTS>
__device__ __forceinline__ void split_pair(unsigned (&parts)[PARTS], float x, float y) {
    if constexpr (PARTS == 1) {
        parts[0] = pair_bits(x, y, T(0.0f));
    } else {
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            parts[p] = pair_bits(x, y, T(0.0f));
            T pair[2];
            __builtin_memcpy(pair, &parts[p], 4);
            x -= (float)pair[0], y -= (float)pair[1];
        }
    }
}

// Stores 4 neighbouring floats as parts, at a multiple of 8 bytes; `plane` elements lie between the parts.
template <int PARTS, typename T>
__device__ __forceinline__ void store_parts(T* place, int plane, const float (&values)[4]) {
    unsigned left[PARTS], right[PARTS];
    split_pair<T>(left, values[0], values[1]);
    split_pair<T>(right, values[2], values[3]);
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
        *reinterpret_cast<uint2*>(place + p * plane) = make_uint2(left[p], right[p]);
}

// A 16 x 16 operand A in parts: rows from `tile` on, `stride` elements apart.
template <int PARTS, typename T>
__device__ __forceinline__ void load_rows(unsigned (&a)[PARTS][4], const T* tile, int plane, int stride, int lane) {
    const int matrix = lane / 8, offset = (matrix % 2 * 8 + lane % 8) * stride + matrix / 2 * 8;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) ldmatrix_x4<false>(a[p], tile + p * plane, offset, lane);
}

// Two 16 x 8 operands B in parts, side by side: words 0 and 1 are the first one's. Of 16 rows (columns of B), or of 16
// lines of k if BY_K.
template <bool BY_K, int PARTS, typename T>
__device__ __forceinline__ void load_columns_pair(unsigned (&b)[PARTS][4], const T* tile, int plane, int stride,
                                                  int lane) {
    const int matrix = lane / 8, row = (BY_K ? matrix % 2 : matrix / 2) * 8 + lane % 8;
    const int offset = row * stride + (BY_K ? matrix / 2 : matrix % 2) * 8;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) ldmatrix_x4<BY_K>(b[p], tile + p * plane, offset, lane);
}

// sum += A B, 16 x 8 x 16, of halves.
__device__ __forceinline__ void multiply_tile(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int lane,
                                              __half) {
    mma_m16n8k16_half(sum[0], sum[1], sum[2], sum[3], a, b0, b1, lane);
}

__device__ __forceinline__ void multiply_tile(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int lane,
                                              __hip_bfloat16) {
    mma_m16n8k16_bfloat(sum[0], sum[1], sum[2], sum[3], a, b0, b1, lane);
}

// sum += the high parts' product, rest += the others', of a 16 x 8 x 16 product of values of type T.
template <typename T, int PARTS>
__device__ __forceinline__ void split_multiply(float (&sum)[4], float (&rest)[4], const unsigned (&a)[PARTS][4],
                                               const unsigned (&b)[PARTS][4], int second, int lane) {
    const int word = second * 2;
    if constexpr (PARTS == 1) {
        multiply_tile(sum, a[0], b[0][word], b[0][word + 1], lane, T(0.0f));
    } else {
        constexpr int PAIRS[5][2] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}};
#pragma unroll
        for (int i = 0; i < 5; ++i) {
            const int x = PAIRS[i][0], y = PAIRS[i][1];
            multiply_tile(rest, a[x], b[y][word], b[y][word + 1], lane, T(0.0f));
        }
        float high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_tile(high, a[0], b[0][word], b[0][word + 1], lane, T(0.0f));
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += high[i];
    }
}
