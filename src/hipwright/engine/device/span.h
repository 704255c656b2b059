#pragma once
#include <hip/hip_runtime.h>
#include "tile.h"

//@ with is_aligned_to
// PACKS neighbouring packs from p, all on their borders.
template <int PACKS, int N, typename T>
__device__ Tile<T, PACKS * N> load_span(const T* __restrict__ p) {
    Tile<T, PACKS * N> span;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) load_vector<N>(p + k * N, span.v + k * N);
    return span;
}

// Is the address a multiple of N elements? Then no pack reaches beyond a row whose length is one too.
template <int N, typename T>
__device__ bool is_aligned_to(const T* p) {
    return (size_t)p % (N * sizeof(T)) == 0;
}

// Half types as floats, once for all that read them.
template <typename T, int SIZE>
__device__ Tile<float, SIZE> to_floats(const Tile<T, SIZE>& span) {
    Tile<float, SIZE> out;
#pragma unroll
    for (int k = 0; k < SIZE; ++k) out.v[k] = (float)span.v[k];
    return out;
}
