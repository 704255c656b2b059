#pragma once
#include <hip/hip_runtime.h>
#include "tile.h"

// As load_tile, of a row of runs: element `at` lies at p[at / run * stride + at % run].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_strided_row(const T* __restrict__ p, I base, I step, I n, I stride, I run,
                                        bool full = false) {
    Tile<T, ITEMS * N> tile;
    const bool fit = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
    if (fit && (full || base + (ITEMS - 1) * step < n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I at = base + k * step;
            load_vector<N>(p + (at / run * stride + at % run), tile.v + k * N);
        }
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        const T* outer = p + at / run * stride;
        I inner = at % run;
        if (fit && (full || at < n)) {
            load_vector<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || at + j < n) tile.v[k * N + j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_strided_row(T* __restrict__ p, I base, I step, I n, I stride, I run, const Tile<V, ITEMS * N>& tile,
                           bool full = false) {
    const bool fit = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        T* outer = p + at / run * stride;
        I inner = at % run;
        if (fit && (full || at < n)) {
            store_vector<N>(outer + inner, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (full || at + j < n) outer[inner] = T(tile.v[k * N + j]);
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}

// As load_columns, where row `at` lies at p[at / run * outer + at % run * stride].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_strided_columns(const T* __restrict__ p, I base, I step, I n, I stride, int width,
                                               I outer, I run) {
    Tile<T, ITEMS * N> tile;
    const bool fit = width == N && is_vector_aligned<T, N>(p) &&
                     (N == 1 || (is_vector_aligned<T, N>(p + stride) && is_vector_aligned<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        const T* const row = p + (at / run * outer + at % run * stride);
        if (fit) {
            load_vector<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) tile.v[k * N + j] = row[j];
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_strided_columns(T* __restrict__ p, I base, I step, I n, I stride, int width, I outer, I run,
                                  const Tile<V, ITEMS * N>& tile) {
    const bool fit = width == N && is_vector_aligned<T, N>(p) &&
                     (N == 1 || (is_vector_aligned<T, N>(p + stride) && is_vector_aligned<T, N>(p + outer)));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T* const row = p + (at / run * outer + at % run * stride);
        if (fit) {
            store_vector<N>(row, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (j < width) row[j] = T(tile.v[k * N + j]);
        }
    }
}
