// Tiles of short rows that lie one behind the other, as windows of four elements: a thread has all elements of a row.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Whether N rows of WIDTH elements are accessed as vectors: by 16 bytes, or by the power of two that they are.
template <typename T, int N, int WIDTH>
__device__ constexpr bool are_short_rows_packed() {
    constexpr int BYTES = N * WIDTH * (int)sizeof(T);
    return BYTES % 16 == 0 || (BYTES < 16 && (BYTES & (BYTES - 1)) == 0);
}

// Whether such vectors can be accessed at the address.
template <typename T, int N, int WIDTH>
__device__ bool are_short_rows_aligned(const T* p) {
    if constexpr (are_short_rows_packed<T, N, WIDTH>()) return is_vector_aligned<T, N * WIDTH>(p);
    return true;
}

// Loads rows of WIDTH elements from p on: ITEMS times N neighbouring rows, the first `base`, `step` rows apart; n rows in
// all, which cut no N. Elements of a row lie together in the tile. Rows beyond n are zero.
template <int ITEMS, int N, int WIDTH, typename T, typename I>
__device__ Tile<T, ITEMS * N * WIDTH> load_short_rows(const T* __restrict__ p, I base, I step, I n) {
    if constexpr (are_short_rows_packed<T, N, WIDTH>()) {
        return load_whole_vectors<ITEMS, N * WIDTH>(p, base * WIDTH, step * WIDTH, n * WIDTH);
    } else {
        Tile<T, ITEMS * N * WIDTH> tile = {};
#pragma unroll
        for (int k = 0; k < ITEMS * N; ++k) {
            const I row = base + k / N * step + k % N;
            if (row >= n) continue;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) tile.v[k * WIDTH + j] = p[row * WIDTH + j];
        }
        return tile;
    }
}

// Stores rows as load_short_rows loads them.
template <int ITEMS, int N, int WIDTH, typename T, typename I>
__device__ void store_short_rows(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N * WIDTH>& tile) {
    if constexpr (are_short_rows_packed<T, N, WIDTH>()) {
        store_whole_vectors<ITEMS, N * WIDTH>(p, base * WIDTH, step * WIDTH, n * WIDTH, tile);
    } else {
#pragma unroll
        for (int k = 0; k < ITEMS * N; ++k) {
            const I row = base + k / N * step + k % N;
            if (row >= n) continue;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) p[row * WIDTH + j] = tile.v[k * WIDTH + j];
        }
    }
}
