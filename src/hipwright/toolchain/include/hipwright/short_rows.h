// Tiles of short rows that lie one behind the other, as windows of four elements: a thread has all elements of a row.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Whether N rows of WIDTH elements are accessed as vectors: by 16 bytes, or by the 8 or 4 that they are.
template <typename T, int N, int WIDTH>
__device__ constexpr bool are_short_rows_packed() {
    constexpr int BYTES = N * WIDTH * (int)sizeof(T);
    return BYTES % 16 == 0 || BYTES == 8 || BYTES == 4;
}

// Whether such vectors can be accessed at the address.
template <typename T, int N, int WIDTH>
__device__ bool are_short_rows_aligned(const T* p) {
    if constexpr (are_short_rows_packed<T, N, WIDTH>()) return is_vector_aligned<T, N * WIDTH>(p);
    return true;
}

#if defined(__AMDGCN__)  // at any address
typedef unsigned PackedRows8 __attribute__((ext_vector_type(2), aligned(1)));
typedef unsigned PackedRows4 __attribute__((aligned(1)));
#else
typedef uint2 PackedRows8;
typedef unsigned PackedRows4;
#endif

// Loads N elements as words W, of which GPUs' compilers drop none: they would read the elements that are used one by one.
template <typename W, int N, typename T>
__device__ __forceinline__ void load_packed_rows(const T* p, T* v) {
#if defined(__AMDGCN__) || defined(__CUDA_ARCH__)
    constexpr int BYTES = N * (int)sizeof(T);
    W words[BYTES / sizeof(W)];
#pragma unroll
    for (int k = 0; k < BYTES / (int)sizeof(W); ++k) words[k] = reinterpret_cast<const W*>(p)[k];
    __builtin_memcpy(v, words, BYTES);
#else
    load_vector<N>(p, v);
#endif
}

// Loads rows of WIDTH elements from p on: ITEMS times N neighbouring rows, the first `base`, `step` rows apart; n rows in
// all, which cut no N. Elements of a row lie together in the tile. Rows beyond n are zero.
template <int ITEMS, int N, int WIDTH, typename T, typename I>
__device__ Tile<T, ITEMS * N * WIDTH> load_short_rows(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N * WIDTH> tile = {};
    constexpr int BYTES = N * WIDTH * (int)sizeof(T);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        const T* from = p + row * WIDTH;
        T* to = tile.v + k * N * WIDTH;
        if constexpr (BYTES % 16 == 0) {
            load_packed_rows<UnalignedBits128, N * WIDTH>(from, to);
        } else if constexpr (BYTES == 8) {
            load_packed_rows<PackedRows8, N * WIDTH>(from, to);
        } else if constexpr (BYTES == 4) {
            load_packed_rows<PackedRows4, N * WIDTH>(from, to);
        } else {
#pragma unroll
            for (int j = 0; j < N * WIDTH; ++j) to[j] = from[j];
        }
    }
    return tile;
}

// Stores rows as load_short_rows loads them.
template <int ITEMS, int N, int WIDTH, typename T, typename I>
__device__ void store_short_rows(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N * WIDTH>& tile) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        if constexpr (are_short_rows_packed<T, N, WIDTH>()) {
            store_vector<N * WIDTH>(p + row * WIDTH, tile.v + k * N * WIDTH);
        } else {
#pragma unroll
            for (int j = 0; j < N * WIDTH; ++j) p[row * WIDTH + j] = tile.v[k * N * WIDTH + j];
        }
    }
}
