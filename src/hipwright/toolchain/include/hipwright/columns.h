// Loads and stores of neighbouring columns.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// load_columns for 2-byte types, in pairs, as words: load_tile_16bit says why.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_columns_16bit(const T* __restrict__ p, I base, I step, I n, I stride, int width) {
    unsigned words[ITEMS * N / 2];
    const bool aligned = width == N && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        const T* const from = p + (row < n ? row : n - 1) * stride;
        if (aligned && n > 0) {
            load_words<N>(from, words + k * N / 2);
        } else {
            load_word_elements<N>(from, row < n ? width : 0, words + k * N / 2);
        }
    }
    return tile_of_words<T, ITEMS * N>(words);
}

// Loads vectors of `width` <= N neighbouring columns from the rows base, base + step, ... (ITEMS of them) below n. Rows
// are `stride` elements apart.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_columns(const T* __restrict__ p, I base, I step, I n, I stride, int width) {
    if constexpr (sizeof(T) == 2 && N % 2 == 0) return load_columns_16bit<ITEMS, N>(p, base, step, n, stride, width);
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = width == N && is_vector_aligned<T, N>(p) && (N == 1 || is_vector_aligned<T, N>(p + stride));
    if (aligned && n > 0) {  // beyond the last row, the last one is loaded again
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I row = base + k * step;
            load_vector<N>(p + (row < n ? row : n - 1) * stride, tile.v + k * N);
        }
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        if (aligned) {
            load_vector<N>(p + row * stride, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = p[row * stride + j];
        }
    }
    return tile;
}

// Stores a tile, laid out as load_columns has it.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_columns(T* __restrict__ p, I base, I step, I n, I stride, int width,
                              const Tile<V, ITEMS * N>& tile) {
    const bool aligned = width == N && is_vector_aligned<T, N>(p) && (N == 1 || is_vector_aligned<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = base + k * step;
        if (row >= n) continue;
        if (aligned) {
            store_vector<N>(p + row * stride, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) p[row * stride + j] = T(tile.v[k * N + j]);
        }
    }
}

// Loads vectors of `width` <= N neighbouring columns from the first `count` of ITEMS rows, given by their addresses.
template <int ITEMS, int N, typename T>
__device__ Tile<T, ITEMS * N> load_gathered_columns(const T* const (&rows)[ITEMS], int count, int width) {
    Tile<T, ITEMS * N> tile = {};
    bool aligned = width == N;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) aligned = aligned && (k >= count || is_vector_aligned<T, N>(rows[k]));
    if (aligned && count == ITEMS) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) load_vector<N>(rows[k], tile.v + k * N);
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (k >= count) continue;
        if (aligned) {
            load_vector<N>(rows[k], tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = rows[k][j];
        }
    }
    return tile;
}
