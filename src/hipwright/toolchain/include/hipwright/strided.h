// Tiles of rows that consist of separate runs.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// load_tile for a strided row: element `index` lies at p[index / run * stride + index % run].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_strided_row(const T* __restrict__ p, I base, I step, I n, I stride, I run,
                                                bool full = false) {
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
    if (aligned && (full || base + (ITEMS - 1) * step < n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I index = base + k * step;
            load_vector<N>(p + (index / run * stride + index % run), tile.v + k * N);
        }
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        const T* outer = p + index / run * stride;
        I inner = index % run;
        if (aligned && (full || index < n)) {
            load_vector<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || index + j < n) tile.v[k * N + j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
    return tile;
}

// store_tile for a strided row.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_strided_row(T* __restrict__ p, I base, I step, I n, I stride, I run,
                                  const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool aligned = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        T* outer = p + index / run * stride;
        I inner = index % run;
        if (aligned && (full || index < n)) {
            store_vector<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || index + j < n) outer[inner] = T(tile.v[k * N + j]);
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}

// load_columns for strided rows: row `index` begins at p[index / run * outer + index % run * stride].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_strided_columns(const T* __restrict__ p, I base, I step, I n, I stride, int width,
                                                    I outer, I run) {
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = width == N && is_vector_aligned<T, N>(p) &&
                     (N == 1 || (is_vector_aligned<T, N>(p + stride) && is_vector_aligned<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        const T* const row = p + (index / run * outer + index % run * stride);
        if (aligned) {
            load_vector<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = row[j];
        }
    }
    return tile;
}

// store_columns for strided rows.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_strided_columns(T* __restrict__ p, I base, I step, I n, I stride, int width, I outer, I run,
                                      const Tile<V, ITEMS * N>& tile) {
    const bool aligned = width == N && is_vector_aligned<T, N>(p) &&
                     (N == 1 || (is_vector_aligned<T, N>(p + stride) && is_vector_aligned<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        T* const row = p + (index / run * outer + index % run * stride);
        if (aligned) {
            store_vector<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) row[j] = T(tile.v[k * N + j]);
        }
    }
}
