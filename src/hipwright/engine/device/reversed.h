#pragma once
#include <hip/hip_runtime.h>
#include "tile.h"

// As load_tile, of a row that is walked backwards: element `at` lies at p[-at].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_reversed(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    Tile<T, ITEMS * N> tile;
    const bool fit = is_vector_aligned<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            T pack[N];
            load_vector<N>(p - (at + (N - 1)), pack);
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = pack[N - 1 - j];
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) tile.v[k * N + j] = p[-(at + j)];
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_reversed(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool fit = is_vector_aligned<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            V pack[N];
#pragma unroll
            for (int j = 0; j < N; ++j) pack[N - 1 - j] = tile.v[k * N + j];
            store_vector<N>(p - (at + (N - 1)), pack);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) p[-(at + j)] = T(tile.v[k * N + j]);
        }
    }
}

//@ with store_whole_vectors_reversed
// As load_whole_vectors and store_whole_vectors for a row walked from its end, where p is; on the borders of packs.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_whole_vectors_reversed(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T pack[N];
        load_vector<N>(p - (at + (N - 1)), pack);
#pragma unroll
        for (int j = 0; j < N; ++j) tile.v[k * N + j] = pack[N - 1 - j];
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename I>
__device__ void store_whole_vectors_reversed(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N>& tile) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        T pack[N];
#pragma unroll
        for (int j = 0; j < N; ++j) pack[N - 1 - j] = tile.v[k * N + j];
        store_vector<N>(p - (at + (N - 1)), pack);
    }
}
