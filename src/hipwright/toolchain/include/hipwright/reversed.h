// Loads and stores of rows whose elements lie in reverse order.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// load_tile for a row that is traversed backwards: element `index` lies at p[-index].
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_reversed(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = is_vector_aligned<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (aligned && (full || index + N <= n)) {
            T vector[N];
            load_vector<N>(p - (index + (N - 1)), vector);
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = vector[N - 1 - j];
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || index + j < n) tile.v[k * N + j] = p[-(index + j)];
        }
    }
    return tile;
}

// store_tile for a row that is traversed backwards.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_reversed(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile,
                               bool full = false) {
    const bool aligned = is_vector_aligned<T, N>(p - (N - 1));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (aligned && (full || index + N <= n)) {
            V vector[N];
#pragma unroll
            for (int j = 0; j < N; ++j) vector[N - 1 - j] = tile.v[k * N + j];
            store_vector<N>(p - (index + (N - 1)), vector);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || index + j < n) p[-(index + j)] = T(tile.v[k * N + j]);
        }
    }
}

// load_whole_vectors for a row that is traversed backwards from p, at aligned addresses.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_whole_vectors_reversed(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        T vector[N];
        load_vector<N>(p - (index + (N - 1)), vector);
#pragma unroll
        for (int j = 0; j < N; ++j) tile.v[k * N + j] = vector[N - 1 - j];
    }
    return tile;
}

// store_whole_vectors for a row that is traversed backwards from p, at aligned addresses.
template <int ITEMS, int N, typename T, typename I>
__device__ void store_whole_vectors_reversed(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N>& tile) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        T vector[N];
#pragma unroll
        for (int j = 0; j < N; ++j) vector[N - 1 - j] = tile.v[k * N + j];
        store_vector<N>(p - (index + (N - 1)), vector);
    }
}
