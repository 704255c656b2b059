// Products of floats for attention by tensor cores: operands in three bfloat16 parts.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/bfloat16_type.h>
#include <hipwright/tensor_cores.h>

// Three parts are 24 bits and have the range of floats, so that nothing is scaled. The products of high parts are added as
// floats 16 at a time, as tensor cores round long sums toward zero; the others are 2^-8 of them and stay in one sum.
constexpr int SPLIT_PARTS = 3;

// x, y as the sum of SPLIT_PARTS pairs of bfloat16, the largest first. A number that is not finite has other parts.
__device__ __forceinline__ void split_pair(unsigned (&parts)[SPLIT_PARTS], float x, float y) {
#pragma unroll
    for (int p = 0; p < SPLIT_PARTS; ++p) {
        const __hip_bfloat16 pair[2] = {__hip_bfloat16(x), __hip_bfloat16(y)};
        __builtin_memcpy(&parts[p], pair, 4);
        x -= (float)pair[0], y -= (float)pair[1];
    }
}

// Stores 4 neighbouring floats as parts, at a multiple of 8 bytes; `plane` elements lie between the parts.
__device__ __forceinline__ void store_parts(__hip_bfloat16* place, int plane, const float (&values)[4]) {
    unsigned left[SPLIT_PARTS], right[SPLIT_PARTS];
    split_pair(left, values[0], values[1]);
    split_pair(right, values[2], values[3]);
#pragma unroll
    for (int p = 0; p < SPLIT_PARTS; ++p)
        *reinterpret_cast<uint2*>(place + p * plane) = make_uint2(left[p], right[p]);
}

// A 16 x 16 operand A in parts: rows from `tile` on, `stride` elements apart.
__device__ __forceinline__ void load_rows(unsigned (&a)[SPLIT_PARTS][4], const __hip_bfloat16* tile, int plane,
                                          int stride, int lane) {
    const int matrix = lane / 8, offset = (matrix % 2 * 8 + lane % 8) * stride + matrix / 2 * 8;
#pragma unroll
    for (int p = 0; p < SPLIT_PARTS; ++p) ldmatrix_x4<false>(a[p], tile + p * plane, offset, lane);
}

// Two 16 x 8 operands B in parts, side by side: words 0 and 1 are the first one's. Of 16 rows (columns of B), or of 16
// lines of k if BY_K.
template <bool BY_K>
__device__ __forceinline__ void load_columns_pair(unsigned (&b)[SPLIT_PARTS][4], const __hip_bfloat16* tile, int plane,
                                                  int stride, int lane) {
    const int matrix = lane / 8, row = (BY_K ? matrix % 2 : matrix / 2) * 8 + lane % 8;
    const int offset = row * stride + (BY_K ? matrix / 2 : matrix % 2) * 8;
#pragma unroll
    for (int p = 0; p < SPLIT_PARTS; ++p) ldmatrix_x4<BY_K>(b[p], tile + p * plane, offset, lane);
}

// sum += the high parts' product, rest += the others', of a 16 x 8 x 16 product.
__device__ __forceinline__ void split_multiply(float (&sum)[4], float (&rest)[4],
                                               const unsigned (&a)[SPLIT_PARTS][4],
                                               const unsigned (&b)[SPLIT_PARTS][4], int second, int lane) {
    constexpr int PAIRS[5][2] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}};
    const int word = second * 2;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        const int x = PAIRS[i][0], y = PAIRS[i][1];
        mma_m16n8k16_bfloat(rest[0], rest[1], rest[2], rest[3], a[x], b[y][word], b[y][word + 1], lane);
    }
    float high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma_m16n8k16_bfloat(high[0], high[1], high[2], high[3], a[0], b[0][word], b[0][word + 1], lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += high[i];
}
