// Loads of a span of neighbouring elements for sliding windows.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Loads VECTORS neighbouring vectors at aligned addresses.
template <int VECTORS, int N, typename T>
__device__ Tile<T, VECTORS * N> load_span(const T* __restrict__ p) {
    Tile<T, VECTORS * N> span = {};
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) load_vector<N>(p + k * N, span.v + k * N);
    return span;
}

// Whether the address is a multiple of N elements.
template <int N, typename T>
__device__ bool is_aligned_to(const T* p) {
    return (size_t)p % (N * sizeof(T)) == 0;
}

// Converts a tile of half types, once for all uses.
template <typename T, int SIZE>
__device__ Tile<float, SIZE> to_floats(const Tile<T, SIZE>& span) {
    Tile<float, SIZE> out;
#pragma unroll
    for (int k = 0; k < SIZE; ++k) out.v[k] = (float)span.v[k];
    return out;
}
