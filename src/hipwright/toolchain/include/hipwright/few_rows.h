// Products of a tile of 16 keys with at most 8 rows, by one wavefront: scores and weighted sums of attention.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/matrix_cores.h>
#include <hipwright/tensor_cores.h>
#include <hipwright/wide.h>

// Keys and values go from memory to the matrix unit's operands 16 bytes at a time: the order of summation is free, so a
// lane's neighbouring elements stand for whatever k the unit gives that lane.

// The lanes that work together: a wave of 64 where MFMA multiplies, else 32.
constexpr int FEW_ROWS_LANES = GEMM_MFMA ? 64 : 32;

#if GEMM_MFMA
__device__ __forceinline__ Accumulator few_rows_product(const __half (&a)[4], const __half (&b)[4], Accumulator c) {
    HalfFragment x, y;
    __builtin_memcpy(&x, a, 8);
    __builtin_memcpy(&y, b, 8);
    return matrix_product(x, y, c);
}
__device__ __forceinline__ Accumulator few_rows_product(const __hip_bfloat16 (&a)[4], const __hip_bfloat16 (&b)[4],
                                                        Accumulator c) {
    BfloatFragment x, y;
    __builtin_memcpy(&x, a, 8);
    __builtin_memcpy(&y, b, 8);
    return matrix_product(x, y, c);
}
#elif GEMM_MMA
__device__ __forceinline__ void few_rows_product(const __half*, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1, int lane) {
    mma_m16n8k16_half(c[0], c[1], c[2], c[3], a, b0, b1, lane);
}
__device__ __forceinline__ void few_rows_product(const __hip_bfloat16*, float (&c)[4], const unsigned (&a)[4],
                                                 unsigned b0, unsigned b1, int lane) {
    mma_m16n8k16_bfloat(c[0], c[1], c[2], c[3], a, b0, b1, lane);
}
#endif

// A lane's part of 8 rows of D elements, a multiple of 32, of a half type T.
template <typename T, int D>
struct FewRows {
    Vector16B<T> part[D / 32];

    // rows: [8][D] in LDS, at a multiple of 16 bytes.
    __device__ __forceinline__ void load(const T* rows, int lane) {
#pragma unroll
        for (int j = 0; j < D / 32; ++j) {
#if GEMM_MFMA
            part[j] = {};
            if (lane % 16 < 8) part[j] = load_16_bytes(rows + lane % 16 * D + 32 * j + lane / 16 * 8);
#else
            part[j] = load_16_bytes(rows + lane / 4 * D + 32 * j + lane % 4 * 8);
#endif
        }
    }

    // Element i of a lane's scores: the product of this key and this row. Rows from 8 on are none.
    static __device__ __forceinline__ int key_of(int lane, int i) {
        return GEMM_MFMA ? lane / 16 * 4 + i : lane / 4 + i / 2 * 8;
    }
    static __device__ __forceinline__ int row_of(int lane, int i) {
        return GEMM_MFMA ? lane % 16 : lane % 4 * 2 + i % 2;
    }

    // Scores of 16 keys. key(number, d): 8 elements of a key from d on, a Vector16B.
    template <typename Key>
    __device__ __forceinline__ void scores(float (&score)[4], Key key, int lane) const {
#if GEMM_MFMA
        Vector16B<T> x[D / 32];
#pragma unroll
        for (int j = 0; j < D / 32; ++j) x[j] = key(lane % 16, 32 * j + lane / 16 * 8);
        Accumulator sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < D / 32; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                T a[4], b[4];
                __builtin_memcpy(a, x[j].v + 4 * half, 8);
                __builtin_memcpy(b, part[j].v + 4 * half, 8);
                sum = few_rows_product(a, b, sum);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) score[i] = sum[i];
#elif GEMM_MMA
        Vector16B<T> x[D / 32], y[D / 32];
#pragma unroll
        for (int j = 0; j < D / 32; ++j) {
            x[j] = key(lane / 4, 32 * j + lane % 4 * 8);
            y[j] = key(lane / 4 + 8, 32 * j + lane % 4 * 8);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) score[i] = 0.0f;
#pragma unroll
        for (int j = 0; j < D / 32; ++j) {
            unsigned upper[4], lower[4], row[4];
            __builtin_memcpy(upper, &x[j], 16);
            __builtin_memcpy(lower, &y[j], 16);
            __builtin_memcpy(row, &part[j], 16);
#pragma unroll
            for (int w = 0; w < 4; w += 2) {
                const unsigned a[4] = {upper[w], lower[w], upper[w + 1], lower[w + 1]};
                few_rows_product((const T*)nullptr, score, a, row[w], row[w + 1], lane);
            }
        }
#else
        float whole[2][2] = {};
#pragma unroll
        for (int j = 0; j < D / 32; ++j) {
#pragma unroll 1
            for (int c = 0; c < 4; ++c) {
                const Vector16B<T> x[2] = {key(lane / 4, 32 * j + c * 8), key(lane / 4 + 8, 32 * j + c * 8)};
#pragma unroll
                for (int r = 0; r < 2; ++r) {
#pragma unroll
                    for (int v = 0; v < 8; ++v) {
                        // the lane that holds this part of the row
                        const float q = __shfl((float)part[j].v[v], (lane % 4 * 2 + r) * 4 + c, 32);
                        whole[0][r] += (float)x[0].v[v] * q, whole[1][r] += (float)x[1].v[v] * q;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) score[i] = whole[i / 2][i % 2];
#endif
    }
};

// A lane's part of 8 sums of DV elements (64, or a multiple of 128): sum over keys of weight(row, key) value(key, d).
// A weight is the sum of PARTS numbers of T: of two it is as exact as the values, of three as a float. With infinite
// values such sums are NaN, see `add_by_floats`.
template <typename T, int DV, int PARTS = 2>
struct FewRowSums {
    static constexpr int TILES = DV / 16, WIDTH = GEMM_MFMA && DV < 128 ? DV / 16 : 8;
    float sum[TILES][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[t][i] = 0.0f;
        }
    }

    // Element i of tile t of a lane's sums.
    static __device__ __forceinline__ int d_of(int lane, int t, int i) {
        return GEMM_MFMA ? t / WIDTH * (16 * WIDTH) + (lane / 16 * 4 + i) * WIDTH + t % WIDTH
                         : t / 4 * 64 + lane / 4 * 8 + t % 4 * 2 + i / 2;
    }
    static __device__ __forceinline__ int row_of(int lane, int i) {
        return GEMM_MFMA ? lane % 16 : lane % 4 * 2 + i % 2;
    }

    // Adds the 16 keys from `first` on. value(key, d): 8 elements of a key's value, d a multiple of 8. weights: of row 0
    // and key 0, in LDS at a multiple of 16 bytes, rows `stride` apart.
    template <typename Value>
    __device__ __forceinline__ void add(Value value, int first, const float* weights, int stride, int lane) {
#if GEMM_MFMA
        T part[PARTS][4] = {};
        if (lane % 16 < 8) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float rest = weights[lane % 16 * stride + first + lane / 16 * 4 + i];
#pragma unroll
                for (int p = 0; p < PARTS; ++p) part[p][i] = T(rest), rest -= (float)part[p][i];
            }
        }
#pragma unroll
        for (int pass = 0; pass < TILES / WIDTH; ++pass) {
            const int d = pass * 16 * WIDTH + lane % 16 * WIDTH, within = d % 8;
            T x[4][WIDTH];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Vector16B<T> vector = value(first + lane / 16 * 4 + i, d - within);
                if constexpr (WIDTH == 8) {
                    __builtin_memcpy(x[i], &vector, 16);
                } else {  // two lanes share a vector
                    unsigned words[4];
                    __builtin_memcpy(words, &vector, 16);
                    const unsigned mine[2] = {within ? words[2] : words[0], within ? words[3] : words[1]};
                    __builtin_memcpy(x[i], mine, 8);
                }
            }
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) {
                T a[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = x[i][e];
                Accumulator c;
#pragma unroll
                for (int i = 0; i < 4; ++i) c[i] = sum[pass * WIDTH + e][i];
#pragma unroll
                for (int p = 0; p < PARTS; ++p) c = few_rows_product(a, part[p], c);
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[pass * WIDTH + e][i] = c[i];
            }
        }
#elif GEMM_MMA
        unsigned part[PARTS][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float* pair = weights + lane / 4 * stride + first + lane % 4 * 4 + 2 * i;
            float rest[2] = {pair[0], pair[1]};
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                const T x[2] = {T(rest[0]), T(rest[1])};
                __builtin_memcpy(&part[p][i], x, 4);
                rest[0] -= (float)x[0], rest[1] -= (float)x[1];
            }
        }
#pragma unroll
        for (int pass = 0; pass < DV / 64; ++pass) {
            unsigned x[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Vector16B<T> vector = value(first + lane % 4 * 4 + i, pass * 64 + lane / 4 * 8);
                __builtin_memcpy(x[i], &vector, 16);
            }
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                const unsigned a[4] = {(x[0][w] & 0xffffu) | x[1][w] << 16, x[0][w] >> 16 | (x[1][w] & 0xffff0000u),
                                       (x[2][w] & 0xffffu) | x[3][w] << 16, x[2][w] >> 16 | (x[3][w] & 0xffff0000u)};
#pragma unroll
                for (int p = 0; p < PARTS; ++p)
                    few_rows_product((const T*)nullptr, sum[pass * 4 + w], a, part[p][0], part[p][1], lane);
            }
        }
#else
        add_by_floats(value, first, weights, stride, lane);
#endif
    }

    // The same by products of floats.
    template <typename Value>
    __device__ void add_by_floats(Value value, int first, const float* weights, int stride, int lane) {
        constexpr int EACH = GEMM_MFMA ? WIDTH : 4;  // tiles of a lane's neighbouring elements
#pragma unroll 1
        for (int k = first; k < first + 16; ++k) {
#pragma unroll
            for (int t = 0; t < TILES; t += EACH) {
#pragma unroll
                for (int i = 0; i < 4; i += GEMM_MFMA ? 1 : 4) {
                    const int d = d_of(lane, t, i);
                    const Vector16B<T> x = value(k, d / 8 * 8);
                    const bool upper = WIDTH == 4 && d % 8 != 0;
#pragma unroll
                    for (int e = 0; e < EACH; ++e) {
#if GEMM_MFMA
                        const float number = upper ? (float)x.v[(e + 4) % 8] : (float)x.v[e];
                        if (row_of(lane, i) < 8) sum[t + e][i] += weights[row_of(lane, i) * stride + k] * number;
#else
#pragma unroll
                        for (int c = 0; c < 4; ++c)
                            sum[t + e][c] += weights[row_of(lane, c) * stride + k] * (float)x.v[e * 2 + c / 2];
#endif
                    }
                }
            }
        }
    }

    // Whether all sums are finite.
    __device__ __forceinline__ bool is_finite() const {
        float rest = 0.0f;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) rest += sum[t][i] - sum[t][i];
        }
        return rest == 0.0f;
    }

    // Adds the sums of WAVES wavefronts; the first one has the result. memory: WAVES / 2 * LANES * DV / 4 floats of LDS.
    template <int WAVES>
    __device__ __forceinline__ void combine(float* memory, int wave, int lane) {
        for (int half = WAVES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (wave >= half && wave < 2 * half) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        memory[((wave - half) * TILES * 4 + t * 4 + i) * FEW_ROWS_LANES + lane] = sum[t][i];
                }
            }
            __syncthreads();
            if (wave < half) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        sum[t][i] += memory[(wave * TILES * 4 + t * 4 + i) * FEW_ROWS_LANES + lane];
                }
            }
        }
    }
};
