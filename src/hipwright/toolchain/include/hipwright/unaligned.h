// Tiles of rows that begin at any address.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Loads 16 bytes at an unaligned address: selects them from the two aligned words of 16 bytes in which they lie.
template <int N, typename T>
__device__ void load_unaligned_vector(const T* p, T* v) {
    const size_t offset = (size_t)p % 16;
    const auto* const vectors = reinterpret_cast<const AlignedVector<unsigned, 4>*>(p - offset / sizeof(T));
    const AlignedVector<unsigned, 4> left = vectors[0], right = vectors[1];
    unsigned word[9] = {}, out[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) word[k] = left.v[k], word[k + 4] = right.v[k];
#pragma unroll
    for (int k = 0; k < 6; ++k) word[k] = offset & 8 ? word[k + 2] : word[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) word[k] = offset & 4 ? word[k + 1] : word[k];
#pragma unroll
    for (int k = 0; k < 4; ++k)
        out[k] = (unsigned)(((unsigned long long)word[k + 1] << 32 | word[k]) >> (offset % 4 * 8));
    __builtin_memcpy(v, out, 16);
}

// load_tile for rows that begin at any address.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_unaligned_tile(const T* __restrict__ p, I base, I step, I n, bool full = false) {
#if HIPWRIGHT_AMD
    return load_tile<ITEMS, N>(p, base, step, n, full);
#else
    if constexpr (N * sizeof(T) != 16) {
        return load_tile<ITEMS, N>(p, base, step, n, full);
    } else {
        Tile<T, ITEMS * N> tile = {};
        if (base >= N && base + (ITEMS - 1) * step + 2 * N <= n) {  // both aligned words lie within the row
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) load_unaligned_vector<N>(p + (base + k * step), tile.v + k * N);
            return tile;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I index = base + k * step;
            if (index >= N && index + 2 * N <= n) {
                load_unaligned_vector<N>(p + index, tile.v + k * N);
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j)
                    if (index + j < n) tile.v[k * N + j] = p[index + j];
            }
        }
        return tile;
    }
#endif
}

// load_tile for the aligned interior p[0, n) of an unaligned row: n is a multiple of N, and at most `maximum`.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_row_interior(const T* __restrict__ p, I base, I step, I n, I maximum) {
    Tile<T, ITEMS * N> tile = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (k * step < maximum && base + k * step < n) load_vector<N>(p + (base + k * step), tile.v + k * N);
    return tile;
}

// store_tile for the aligned interior of an unaligned row.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_row_interior(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, I maximum) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (k * step < maximum && base + k * step < n) store_vector<N>(p + (base + k * step), tile.v + k * N);
}
