"""NVIDIA's tensor cores for the tiles of gemm.py: what a lane holds of a 16 x 16 by 16 x 8 product, and the product.

`mma.sync.m16n8k16` of half types into float sums, and `ldmatrix`, which fills a warp's fragments from LDS (PTX ISA,
"Matrix Fragments for mma.m16n8k16"). The columns of two neighbouring tiles are dealt out so that a lane's sums are
four neighbours of one row: column 4 c + 2 m + e of sixteen is column 2 c + e of tile m. Rows in LDS are an odd number
of 16 bytes, so those of A meet no bank twice, those of B twice. Elsewhere the same is done with shuffles and plain
reads, which is how tests run this path on a processor.
"""

from __future__ import annotations

MMA = {"float16": "mma_half", "bfloat16": "mma_bfloat"}
"""dtype: the product."""

TENSOR = """#if __CUDA_ARCH__ >= 800
#define GEMM_MMA 1
#else
#define GEMM_MMA 0
#endif

// What lane l holds of 16 rows of 16 halves: of row l / 4 and 8 below, k 2 (l % 4) and 8 on, two a word.
template <typename T>
__device__ void rows_of_16(unsigned (&f)[4], const T* tile, int pitch, int lane) {
#ifdef __CUDA_ARCH__
    const unsigned at = (unsigned)__cvta_generic_to_shared(tile + lane % 16 * pitch + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(at)
                 : "memory");
#else
#pragma unroll
    for (int m = 0; m < 4; ++m)
        __builtin_memcpy(&f[m], tile + (m % 2 * 8 + lane / 4) * pitch + m / 2 * 8 + lane % 4 * 2, 4);
#endif
}

// The same of 16 columns, tiles m = 0 and 1: k 2 (l % 4) and 8 on of column n = l / 4 of tile 0, then of tile 1.
template <typename T>
__device__ void columns_of_16(unsigned (&f)[4], const T* tile, int pitch, int lane) {
#ifdef __CUDA_ARCH__
    const int n = lane % 8, m = lane / 16;
    const T* from = tile + (n / 2 * 4 + m * 2 + n % 2) * pitch + lane / 8 % 2 * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from))
                 : "memory");
#else
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        const int n = lane / 4, column = n / 2 * 4 + q / 2 * 2 + n % 2;
        __builtin_memcpy(&f[q], tile + column * pitch + q % 2 * 8 + lane % 4 * 2, 4);
    }
#endif
}

// c += A B of a warp: sums of row l / 4 (c0, c1) and 8 below (c2, c3), columns 2 (l % 4) and 1 on.
#if GEMM_MMA && defined(__CUDA_ARCH__)
#define GEMM_PRODUCT(NAME, HALVES, T)                                                                                  \
    __device__ __forceinline__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4],           \
                                         unsigned b0, unsigned b1, int) {                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALVES "." HALVES                                        \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
#else
template <typename T>
__device__ float gemm_product(unsigned a, unsigned b) {
    T x[2], y[2];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    return (float)x[0] * (float)y[0] + (float)x[1] * (float)y[1];
}
#define GEMM_PRODUCT(NAME, HALVES, T)                                                                                  \
    __device__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4], unsigned b0, unsigned b1, \
                         int lane) {                                                                                   \
        for (int k = 0; k < 4; ++k) {                                                                                  \
            for (int half = 0; half < 2; ++half) {                                                                     \
                const unsigned b = half ? b1 : b0;                                                                     \
                const unsigned up = __shfl((int)a[half * 2], lane / 4 * 4 + k, 32);                                    \
                const unsigned low = __shfl((int)a[half * 2 + 1], lane / 4 * 4 + k, 32);                               \
                const unsigned left = __shfl((int)b, lane % 4 * 8 + k, 32);                                            \
                const unsigned right = __shfl((int)b, lane % 4 * 8 + 4 + k, 32);                                       \
                c0 += gemm_product<T>(up, left), c1 += gemm_product<T>(up, right);                                     \
                c2 += gemm_product<T>(low, left), c3 += gemm_product<T>(low, right);                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
#endif
GEMM_PRODUCT(mma_half, "f16", __half)
GEMM_PRODUCT(mma_bfloat, "bf16", __hip_bfloat16)
"""
