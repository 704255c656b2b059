// Products of floats by matrix units of half types: operands in two parts, and a block's tile of their product.
#pragma once
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hipwright/async_copy.h>
#include <hipwright/cooperative.h>
#include <hipwright/matrix_cores.h>
#include <hipwright/tensor_cores.h>
#include <hipwright/warpgroups.h>

// The parts of 32 neighbouring numbers of a row lie side by side: 32 high parts, then 32 low parts, 128 bytes.
constexpr int SPLIT_CHUNK = 32;

// 2^exponent; both are normal.
__device__ __forceinline__ float power_of_two(int exponent) {
    const int bits = (exponent + 127) << 23;
    float out;
    __builtin_memcpy(&out, &bits, 4);
    return out;
}

// The exponent of the power of two that scales numbers up to `largest` below 2^15; 0 if it is not finite.
__device__ __forceinline__ int split_exponent(float largest) {
    int bits;
    __builtin_memcpy(&bits, &largest, 4);
    const int exponent = (bits >> 23 & 255) - 127;
    return exponent == 128 ? 0 : 14 - (exponent < -110 ? -110 : exponent);
}

// Raises a number in memory, at first zero, to a block's largest magnitude; every thread of 256 calls it.
__device__ __forceinline__ void publish_largest(int* where, float largest) {
    __shared__ float found[8];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) largest = fmaxf(largest, __shfl_xor(largest, distance));
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = largest;
    __syncthreads();
    if (threadIdx.x > 0) return;
#pragma unroll
    for (int i = 1; i < 8; ++i) largest = fmaxf(largest, found[i]);
    atomicMax(where, __float_as_int(largest));  // of numbers that are not negative, the order of their bits
}

// x = high + low / 2048: 11 bits each, rounded to nearest (Ootomo and Yokota, 2022), for |x| < 2^15.
__device__ __forceinline__ void split_parts(float x, __half& high, __half& low) {
    high = __float2half(x);
    low = __float2half((x - __half2float(high)) * 2048.0f);
}

// A sum of products of scaled numbers, times 2^-exponent.
__device__ __forceinline__ float split_unscaled(float sum, int exponent) {
    const int half_way = -exponent >> 1;
    return sum * power_of_two(half_way) * power_of_two(-exponent - half_way);
}

__device__ __forceinline__ bool split_is_finite(float x) {
    return __builtin_fabsf(x) <= 3.402823466e38f;
}

// Index of part k (0 to 63) of row r in an LDS tile: vectors of 8 are swizzled by the row, as the 128-byte swizzle of
// warpgroup instructions does, so that the 8 rows of an ldmatrix lie on different banks.
__device__ __forceinline__ int split_index(int r, int k) {
    return r * 64 + ((k / 8 ^ r % 8) * 8) + k % 8;
}

// Four neighbouring numbers of a row, those of a chunk from k = threadIdx.x % 8 * 4 on: what a thread splits itself.
struct SplitNumbers {
    float v[4];
};

// Stores the parts of scaled numbers to row r of a tile in LDS.
__device__ __forceinline__ void store_split(__half* tile, int r, const SplitNumbers& numbers) {
    struct alignas(8) Parts {
        __half v[4];
    } high, low;
#pragma unroll
    for (int k = 0; k < 4; ++k) split_parts(numbers.v[k], high.v[k], low.v[k]);
    const int k = threadIdx.x % 8 * 4;
    *reinterpret_cast<Parts*>(tile + split_index(r, k)) = high;
    *reinterpret_cast<Parts*>(tile + split_index(r, k + SPLIT_CHUNK)) = low;
}

// A tile of 128 x WIDTH of a product, by a block of 256 threads, in TILES_128 * 32 KiB of LDS, aligned to 1024: so many
// stages of 128 columns, or more of fewer. Chunks are loaded STAGES - 1 ahead. `multiply` adds the products of high parts,
// and of high and low parts, of `chunks` chunks of k from `from` on. load_a(l, r, chunk) is the address of row r of A,
// the l-th that the thread loads, or null for zeros; load_b the same of B. Sums of high parts start anew in every chunk
// and are added as floats, since matrix units add roughly. Then a thread has sums[i][j] of row(i), and of GN
// neighbouring columns from column(j / GN) on. Where there is no cp.async load_a may give the row's scaled numbers, which
// are split on the way to LDS (SplitNumbers). DIRECT: chunks are loaded without registers by AMD's GPUs that can.
template <int WIDTH, int TILES_128, bool DIRECT = false>
struct SplitTile {
    static constexpr int ROWS = 128, STAGE = (ROWS + WIDTH) * 64, STAGES = TILES_128 * 256 / (ROWS + WIDTH);
#if GEMM_WARPGROUPS
    static constexpr int WAVES_N = 1, WM = 1, WN = WIDTH / 8, TM = 2, TN = WIDTH / 4, GN = 4, SHARES = 4;
#elif GEMM_MMA
    static constexpr int WAVES_N = 4, WM = 4, WN = WIDTH / 32, TM = 8, TN = WIDTH / 16, GN = 4, SHARES = 16;
#elif GEMM_MFMA
    static constexpr int WM = 4, WN = WIDTH / 32, TM = 16, TN = WIDTH / 32, GN = 1, SHARES = 32;
#else
    static constexpr int TM = 8, TN = WIDTH / 16, GN = 4, SHARES = 16;
#endif
    float sums[TM][TN];

    __device__ static int row(int i) {
        const int thread = threadIdx.x;
#if GEMM_MMA
        return (thread / 32 / WAVES_N * WM + i / 2) * 16 + i % 2 * 8 + thread % 32 / 4;
#elif GEMM_MFMA
        return (thread / 128 * WM + i / 4) * 16 + thread % 64 / 16 * 4 + i % 4;
#else
        return (i / 4 * 16 + thread / 16) * 4 + i % 4;
#endif
    }

    __device__ static int column(int j) {
        const int thread = threadIdx.x;
#if GEMM_MMA
        return thread / 32 % WAVES_N * (WN * 8) + j * 16 + thread % 2 * 8 + thread % 4 / 2 * 4;
#elif GEMM_MFMA
        return (thread / 64 % 2 * WN + j) * 16 + thread % 16;
#else
        return (j * 16 + thread % 16) * 4;
#endif
    }

    // Which of the SHARES threads with sums of a row this one is.
    __device__ static int share() {
        const int thread = threadIdx.x;
#if GEMM_MMA
        return thread / 32 % WAVES_N * 4 + thread % 4;
#elif GEMM_MFMA
        return thread / 64 % 2 * 16 + thread % 16;
#else
        return thread % 16;
#endif
    }

    template <typename LoadA, typename LoadB>
    __device__ __forceinline__ void multiply(unsigned char* lds, int chunks, LoadA load_a, LoadB load_b, int from = 0) {
        __half* const tiles = reinterpret_cast<__half*>(lds);
        const int first = threadIdx.x / 8;
#if GEMM_MMA
        const int vector = threadIdx.x % 8 * 8;
        const __half* const readable = load_b(0, first, from);
        const auto load = [&](int chunk, int stage) {
            __half* const tile = tiles + stage * STAGE;
            const auto copy = [&](int row, const __half* source) {
                split_copy(tile + split_index(row, vector), source, vector, readable);
            };
#pragma unroll
            for (int l = 0; l < ROWS / 32; ++l) copy(first + l * 32, load_a(l, first + l * 32, from + chunk));
#pragma unroll
            for (int l = 0; l < WIDTH / 32; ++l) copy(ROWS + first + l * 32, load_b(l, first + l * 32, from + chunk));
        };
        begin();
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            if (stage < chunks) load(stage, stage);
            cp_async_commit();
        }
        int stage = 0, next = STAGES - 1;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            cp_async_wait_group<STAGES - 2>();
            finish_chunk();
            __syncthreads();  // this chunk is complete, and the last is no longer read
            const __half *const a = tiles + stage * STAGE, *const b = a + ROWS * 64;
            if (STAGES > 2) start(a, b);
            if (chunk + STAGES - 1 < chunks) load(chunk + STAGES - 1, next);
            cp_async_commit();
            if (STAGES == 2) start(a, b);  // the next chunk is waited for: its loads go first
            add(a, b);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
        end();
#else
#if GEMM_MFMA
        if constexpr (DIRECT) {
            multiply_direct(tiles, chunks, load_a, load_b, from);
            return;
        }
#endif
        decltype(loaded(load_a(0, 0, 0))) next_a[ROWS / 32];
        Loaded next_b[WIDTH / 32];
        const auto read = [&](int chunk) {
#pragma unroll
            for (int l = 0; l < ROWS / 32; ++l) next_a[l] = loaded(load_a(l, first + l * 32, from + chunk));
#pragma unroll
            for (int l = 0; l < WIDTH / 32; ++l) next_b[l] = loaded(load_b(l, first + l * 32, from + chunk));
        };
        const auto store = [&](int chunk) {
            __half* const tile = tiles + (chunk & 1) * STAGE;
#pragma unroll
            for (int l = 0; l < ROWS / 32; ++l) keep(tile, first + l * 32, next_a[l]);
#pragma unroll
            for (int l = 0; l < WIDTH / 32; ++l) keep(tile, ROWS + first + l * 32, next_b[l]);
        };
        begin();
        read(0);
        store(0);
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            __syncthreads();
            if (chunk + 1 < chunks) read(chunk + 1);
            add(tiles + (chunk & 1) * STAGE);
            if (chunk + 1 < chunks) store(chunk + 1);
        }
#endif
    }

    // Adds up the sums of `slices` blocks that share a tile, each of other chunks, in the order of the slices. True in the
    // block that comes last, which has them. partials: slices * 128 * WIDTH floats of the tile; arrived: at first zero.
    __device__ bool combine(unsigned char* lds, float* partials, int* arrived, int slice, int slices) {
        const auto place = [&](int i, int j) { return (i * TN + j) * 256 + (int)threadIdx.x; };
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) partials[slice * (ROWS * WIDTH) + place(i, j)] = sums[i][j];
        }
        __syncthreads();
        if (!is_last_block(arrived, slices, reinterpret_cast<int*>(lds) + 1)) return false;  // no static LDS is left
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) sums[i][j] = partials[place(i, j)];
        }
        for (int other = 1; other < slices; ++other) {
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) sums[i][j] += partials[other * (ROWS * WIDTH) + place(i, j)];
            }
        }
        return true;
    }

    // Where LDS has the sum of row r and column c: columns of neighbouring rows, or rows of neighbouring columns. Both are
    // swizzled, so that the lanes of a matrix unit's result, 8 rows by 4 groups of columns, are on different banks.
    template <bool BY_COLUMNS>
    __device__ static int sum_index(int r, int c) {
        return BY_COLUMNS ? c * ROWS + (r ^ c / 4 % 4 * 8) : r * WIDTH + (c ^ r % 2 * 16);
    }

    // Stores all sums to LDS, where every thread may read them.
    template <bool BY_COLUMNS>
    __device__ void publish_sums(unsigned char* lds) {
        float* const tile = reinterpret_cast<float*>(lds);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; j += GN) {
                float* const to = tile + sum_index<BY_COLUMNS>(row(i), column(j / GN));
#pragma unroll
                for (int v = 0; v < GN; ++v) to[BY_COLUMNS ? v * ROWS : v] = sums[i][j + v];
            }
        }
        __syncthreads();
    }

private:
#if GEMM_MFMA
    // Lane l of a wave copies to the l-th 16 bytes of 8 rows: which of a row's vectors these are, the swizzle says.
    template <typename LoadA, typename LoadB>
    __device__ __forceinline__ void multiply_direct(__half* tiles, int chunks, LoadA load_a, LoadB load_b, int from) {
        const int first = threadIdx.x / 8, place = threadIdx.x % 8 * 8, vector = (threadIdx.x % 8 ^ first % 8) * 8;
        const auto copy = [&](int chunk) __attribute__((always_inline)) {  // else captures stay in memory
            __half* const tile = tiles + (chunk & 1) * STAGE + first * 64 + place;
            bool outside[(ROWS + WIDTH) / 32];
#pragma unroll
            for (int l = 0; l < (ROWS + WIDTH) / 32; ++l) {
                const int r = first + l * 32;
                const __half* const source =
                    r < ROWS ? load_a(l, r, from + chunk) : load_b(l - ROWS / 32, r - ROWS, from + chunk);
                outside[l] = source == nullptr;
                direct_copy_16(tile + l * 32 * 64, source + vector, !outside[l]);
            }
#pragma unroll
            for (int l = 0; l < (ROWS + WIDTH) / 32; ++l) {  // behind all loads, as compilers let them wait for such stores
                if (outside[l]) __builtin_memset(tile + l * 32 * 64, 0, 16);
            }
        };
        begin();
        copy(0);
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            wait_for_direct_copies();
            __syncthreads();
            if (chunk + 1 < chunks) copy(chunk + 1);
            add(tiles + (chunk & 1) * STAGE);
        }
    }
#endif

#if !GEMM_MMA
    // What a thread loads of a row: 8 parts for matrix units; without these 4 numbers, which LDS holds whole.
#if GEMM_MFMA
    struct alignas(16) Loaded {
        __half parts[8];
    };
#else
    using Loaded = SplitNumbers;
#endif

    __device__ static SplitNumbers loaded(const SplitNumbers& numbers) {
        return numbers;
    }

    // From the parts of a row, or zeros from null.
    __device__ static Loaded loaded(const __half* from) {
        Loaded out = {};
        if (from == nullptr) return out;
#if GEMM_MFMA
        __builtin_memcpy(&out, from + threadIdx.x % 8 * 8, 16);
#else
        for (int k = 0; k < 4; ++k) {
            const __half* const high = from + threadIdx.x % 8 * 4 + k;
            out.v[k] = (float)high[0] + (float)high[SPLIT_CHUNK] * (1.0f / 2048.0f);
        }
#endif
        return out;
    }

    // Stores them to row r of a tile in LDS, whose numbers lie [k][row].
#if GEMM_MFMA
    __device__ static void keep(__half* tile, int r, const Loaded& from) {
        __builtin_memcpy(tile + split_index(r, threadIdx.x % 8 * 8), &from, 16);
    }
    __device__ static void keep(__half* tile, int r, const SplitNumbers& from) {
        store_split(tile, r, from);
    }
#else
    __device__ static void keep(__half* tile, int r, const Loaded& from) {
        float* const numbers = reinterpret_cast<float*>(tile);
        for (int k = 0; k < 4; ++k) numbers[(threadIdx.x % 8 * 4 + k) * (ROWS + WIDTH) + r] = from.v[k];
    }
#endif
#endif

#if GEMM_WARPGROUPS
    float high[WIDTH / 2], cross[WIDTH / 2];
#endif

#if GEMM_MMA
    // Copies 8 parts to LDS, zeros from null. Zeros have an address too, of nothing that is read: `readable`.
    __device__ static __forceinline__ void split_copy(
        __half* destination, const __half* source, int vector, const __half* readable
    ) {
        cp_async_16_or_zero(destination, source == nullptr ? readable : source + vector, source != nullptr);
    }
#endif

public:
    // What `multiply` consists of, for other loops over chunks (split_rows.h): `begin`, then for each chunk
    // `finish_chunk`, a barrier, `start` and `add`, and `end`.
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) sums[i][j] = 0.0f;
        }
#if GEMM_WARPGROUPS
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) high[i] = cross[i] = 0.0f;
#endif
    }

#if GEMM_MMA
    // What must have ended before a barrier after which the tile of the last chunk is overwritten.
    __device__ __forceinline__ void finish_chunk() {
#if GEMM_WARPGROUPS
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
        pin_registers(cross);
#endif
    }

    __device__ __forceinline__ void end() {
        const int lane = threadIdx.x % 32;
#if GEMM_WARPGROUPS
        finish_chunk();
#pragma unroll
        for (int j = 0; j < WN; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[e / 2][j * 2 + e % 2] += cross[j * 4 + e] * (1.0f / 2048.0f);
        }
#endif
        exchange_neighbours(sums, lane);
    }
#endif

#if GEMM_WARPGROUPS
    // Starts the products of a chunk, which run while the next one is loaded. The sums of products with low parts run on
    // over all chunks: their roughness is 2048 times smaller.
    __device__ __forceinline__ void start(const __half* tile_a, const __half* tile_b) {
        const unsigned long long a = warpgroup_descriptor(tile_a + threadIdx.x / 128 * (64 * 64));
        const unsigned long long b = warpgroup_descriptor(tile_b);
        pin_registers(high);
        pin_registers(cross);
        asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
        warpgroup_mma(high, a, b, 0);
        warpgroup_mma(high, a + 2, b + 2, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
        warpgroup_mma(cross, a + 4, b, 1);
        warpgroup_mma(cross, a + 6, b + 2, 1);
        warpgroup_mma(cross, a, b + 4, 1);
        warpgroup_mma(cross, a + 2, b + 6, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
    }

    __device__ __forceinline__ void add(const __half*, const __half*) {
        asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
        pin_registers(high);
#pragma unroll
        for (int j = 0; j < WN; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[e / 2][j * 2 + e % 2] += high[j * 4 + e];
        }
    }
#elif GEMM_MMA
    __device__ __forceinline__ void start(const __half*, const __half*) {}

    // Products with low parts come first; their sum is scaled, and the high parts are added to it.
    __device__ __forceinline__ void add(const __half* tile_a, const __half* tile_b) {
        const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;
        const int row_a = wave / 4 * (WM * 16) + lane % 16, k_a = lane / 16 * 8;
        const int row_b = wave % 4 * (WN * 8) + lane / 16 * 8 + lane % 8, k_b = lane / 8 % 2 * 8;
        unsigned high_a[2][WM][4], high_b[2][WN / 2][4];
        float part[TM][TN] = {};
        const auto product = [&](const unsigned (&a)[WM][4], const unsigned (&b)[WN / 2][4]) {
#pragma unroll
            for (int i = 0; i < WM; ++i) {
#pragma unroll
                for (int j = 0; j < WN; ++j)
                    mma_m16n8k16_half(part[2 * i][2 * j], part[2 * i][2 * j + 1], part[2 * i + 1][2 * j],
                                      part[2 * i + 1][2 * j + 1], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1],
                                      lane);
            }
        };
#pragma unroll
        for (int q = 0; q < 2; ++q) {
            unsigned low_a[WM][4], low_b[WN / 2][4];
#pragma unroll
            for (int i = 0; i < WM; ++i) {
                ldmatrix_x4<false>(high_a[q][i], tile_a, split_index(row_a + i * 16, k_a + q * 16), lane);
                ldmatrix_x4<false>(low_a[i], tile_a, split_index(row_a + i * 16, k_a + q * 16 + 32), lane);
            }
#pragma unroll
            for (int j = 0; j < WN / 2; ++j) {
                ldmatrix_x4<false>(high_b[q][j], tile_b, split_index(row_b + j * 16, k_b + q * 16), lane);
                ldmatrix_x4<false>(low_b[j], tile_b, split_index(row_b + j * 16, k_b + q * 16 + 32), lane);
            }
            product(low_a, high_b[q]);
            product(high_a[q], low_b);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) part[i][j] *= 1.0f / 2048.0f;
        }
        product(high_a[0], high_b[0]);
        product(high_a[1], high_b[1]);
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j) sums[i][j] += part[i][j];
        }
    }
#elif GEMM_MFMA
    __device__ __forceinline__ void add(const __half* tile) {
        const int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
        const int row_a = wave / 2 * (WM * 16) + lane % 16, row_b = ROWS + wave % 2 * (WN * 16) + lane % 16;
        Accumulator high[WM][WN] = {}, cross[WM][WN] = {};
        const int k = lane / 16 * 8;
        HalfFragments<SPLIT_CHUNK> high_a[WM], low_a[WM];
#pragma unroll
        for (int i = 0; i < WM; ++i) {
            __builtin_memcpy(&high_a[i], tile + split_index(row_a + i * 16, k), 16);
            __builtin_memcpy(&low_a[i], tile + split_index(row_a + i * 16, k + 32), 16);
        }
#pragma unroll
        for (int j = 0; j < WN; ++j) {
            HalfFragments<SPLIT_CHUNK> high_b, low_b;
            __builtin_memcpy(&high_b, tile + split_index(row_b + j * 16, k), 16);
            __builtin_memcpy(&low_b, tile + split_index(row_b + j * 16, k + 32), 16);
#pragma unroll
            for (int i = 0; i < WM; ++i) {
                cross[i][j] = matrix_product(high_a[i], low_b, matrix_product(low_a[i], high_b, cross[i][j]));
                high[i][j] = matrix_product(high_a[i], high_b, high[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
            for (int j = 0; j < TN; ++j)
                sums[i][j] += high[i / 4][j][i % 4] + cross[i / 4][j][i % 4] * (1.0f / 2048.0f);
        }
    }
#else
    __device__ __forceinline__ void add(const __half* tile) {
        const float* const numbers = reinterpret_cast<const float*>(tile);
#pragma unroll 4
        for (int k = 0; k < SPLIT_CHUNK; ++k) {
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = numbers[k * (ROWS + WIDTH) + row(i)];
#pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = numbers[k * (ROWS + WIDTH) + ROWS + column(j / GN) + j % GN];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) sums[i][j] += x[i] * y[j];
            }
        }
    }
#endif
};
