// Products of half types by NVIDIA's tensor cores, and their LDS layouts.
#pragma once
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hipwright/bfloat16_type.h>

// Whether kernels use tensor cores for half types.
#if __CUDA_ARCH__ >= 800 || defined(HW_NVIDIA_SIDE)
#define GEMM_MMA 1
#else
#define GEMM_MMA 0
#endif

// Index of element (r, k) of an LDS tile whose rows are 32 neighbouring k. Vectors of 8 elements are swizzled by the
// row, so that the 8 rows of an ldmatrix lie on different banks.
__device__ __forceinline__ int k_contiguous_index(int r, int k) {
    return r * 32 + ((k / 8 ^ r / 2 % 4) * 8) + k % 8;
}

// The same for a tile of 32 lines, one for each k, of ROWS neighbouring rows.
template <int ROWS>
__device__ __forceinline__ int row_contiguous_index(int r, int k) {
    return k * ROWS + ((r / 8 ^ k % 8) * 8) + r % 8;
}

// Loads four 8 x 8 matrices of half types; lanes 8 m .. 8 m + 7 give the offsets of the rows of matrix m. Lane l gets
// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix, or of column l / 4 if TRANSPOSED.
template <bool TRANSPOSED, typename T>
__device__ __forceinline__ void ldmatrix_x4(unsigned (&fragments)[4], const T* tile, int offset, int lane) {
#ifdef __CUDA_ARCH__
    const unsigned address = (unsigned)__cvta_generic_to_shared(tile + offset);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
                     : "r"(address)
                     : "memory");
#else
    for (int m = 0; m < 4; ++m) {
        T pair[2];
        for (int e = 0; e < 2; ++e) {
            const int row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
            pair[e] = tile[__shfl(offset, m * 8 + row, 32) + column];
        }
        __builtin_memcpy(&fragments[m], pair, 4);
    }
#endif
}

// Lanes l and l ^ 1 exchange sums of two neighbouring tiles: a lane then has four neighbouring columns of one tile,
// where it had two columns of each.
template <int TM, int TN>
__device__ __forceinline__ void exchange_neighbours(float (&acc)[TM][TN], int lane) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const bool odd = lane % 2;
            const float x = __shfl_xor(odd ? acc[i][j] : acc[i][j + 2], 1);
            const float y = __shfl_xor(odd ? acc[i][j + 1] : acc[i][j + 3], 1);
            acc[i][j] = odd ? x : acc[i][j];
            acc[i][j + 1] = odd ? y : acc[i][j + 1];
            acc[i][j + 2] = odd ? acc[i][j + 2] : x;
            acc[i][j + 3] = odd ? acc[i][j + 3] : y;
        }
    }
}

// c += A B of one warp, 16 x 8 x 16: lane l has row l / 4 in c0 and c1, row l / 4 + 8 in c2 and c3, of columns
// 2 (l % 4) and 2 (l % 4) + 1.
#ifdef __CUDA_ARCH__
#define GEMM_DEFINE_MMA(NAME, PTX_TYPE, T)                                                                             \
    __device__ __forceinline__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4],           \
                                         unsigned b0, unsigned b1, int) {                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." PTX_TYPE "." PTX_TYPE                                    \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
#else
template <typename T>
__device__ float dot_pair(unsigned a, unsigned b) {
    T x[2], y[2];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    return (float)x[0] * (float)y[0] + (float)x[1] * (float)y[1];
}
#define GEMM_DEFINE_MMA(NAME, PTX_TYPE, T)                                                                             \
    __device__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4], unsigned b0, unsigned b1, \
                         int lane) {                                                                                   \
        for (int k = 0; k < 4; ++k) {                                                                                  \
            for (int half = 0; half < 2; ++half) {                                                                     \
                const unsigned b = half ? b1 : b0;                                                                     \
                const unsigned upper_row = __shfl((int)a[half * 2], lane / 4 * 4 + k, 32);                             \
                const unsigned lower_row = __shfl((int)a[half * 2 + 1], lane / 4 * 4 + k, 32);                         \
                const unsigned left_column = __shfl((int)b, lane % 4 * 8 + k, 32);                                     \
                const unsigned right_column = __shfl((int)b, lane % 4 * 8 + 4 + k, 32);                                \
                c0 += dot_pair<T>(upper_row, left_column), c1 += dot_pair<T>(upper_row, right_column);                 \
                c2 += dot_pair<T>(lower_row, left_column), c3 += dot_pair<T>(lower_row, right_column);                 \
            }                                                                                                          \
        }                                                                                                              \
    }
#endif
GEMM_DEFINE_MMA(mma_m16n8k16_half, "f16", __half)
GEMM_DEFINE_MMA(mma_m16n8k16_bfloat, "bf16", __hip_bfloat16)

// c += A B of one warp, 16 x 8 x 8, of floats of which the unit takes the upper 19 bits (TF32): lane l gives column l % 4
// of rows l / 4 and l / 4 + 8 in a[0] and a[1], and column l % 4 + 4 in a[2] and a[3]; of B the same k of column l / 4.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&c)[4], const float (&a)[4], float b0, float b1, int lane) {
#ifdef __CUDA_ARCH__
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
                   "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#else
    const auto taken = [](float x) {
        unsigned bits;
        __builtin_memcpy(&bits, &x, 4);
        bits &= 0xffffe000u;
        __builtin_memcpy(&x, &bits, 4);
        return x;
    };
    for (int k = 0; k < 8; ++k) {
        const float upper = taken(__shfl(a[k / 4 * 2], lane / 4 * 4 + k % 4, 32));
        const float lower = taken(__shfl(a[k / 4 * 2 + 1], lane / 4 * 4 + k % 4, 32));
        const float left = taken(__shfl(k / 4 ? b1 : b0, lane % 4 * 8 + k % 4, 32));
        const float right = taken(__shfl(k / 4 ? b1 : b0, lane % 4 * 8 + 4 + k % 4, 32));
        c[0] += upper * left, c[1] += upper * right, c[2] += lower * left, c[3] += lower * right;
    }
#endif
}
