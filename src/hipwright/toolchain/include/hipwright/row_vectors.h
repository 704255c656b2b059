// Vectors of the same columns of several rows, for threads that keep the values of their columns in registers.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Loads the vectors of N elements of ITEMS rows: first, first + step, ... p: the vector of row 0; those of all rows are
// aligned, `stride` elements apart. From `last` on, the first row is loaded again. All loads are issued before the first
// is used.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_row_vectors(const T* __restrict__ p, I first, I step, I last, I stride) {
    Tile<T, ITEMS * N> tile = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = first + k * step;
        load_vector<N>(p + (row < last ? row : first) * stride, tile.v + k * N);
    }
    return tile;
}

// Stores a tile, laid out as load_row_vectors has it.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_row_vectors(T* __restrict__ p, I first, I step, I last, I stride, const Tile<V, ITEMS * N>& tile) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I row = first + k * step;
        if (row < last) store_vector<N>(p + row * stride, tile.v + k * N);
    }
}
