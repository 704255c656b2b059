#pragma once
#include <hip/hip_runtime.h>
#include "tile.h"

// As load_tile where rows begin anywhere: a pack off its border is made of the two in which it lies.
template <int N, typename T>
__device__ void load_unaligned_vector(const T* p, T* v) {
    const size_t off = (size_t)p % 16;
    const auto* const packs = reinterpret_cast<const AlignedVector<unsigned, 4>*>(p - off / sizeof(T));
    const AlignedVector<unsigned, 4> left = packs[0], right = packs[1];
    unsigned word[9] = {}, out[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) word[k] = left.v[k], word[k + 4] = right.v[k];
#pragma unroll
    for (int k = 0; k < 6; ++k) word[k] = off & 8 ? word[k + 2] : word[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) word[k] = off & 4 ? word[k + 1] : word[k];
#pragma unroll
    for (int k = 0; k < 4; ++k)
        out[k] = (unsigned)(((unsigned long long)word[k + 1] << 32 | word[k]) >> (off % 4 * 8));
    __builtin_memcpy(v, out, 16);
}

template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_unaligned_tile(const T* __restrict__ p, I base, I step, I n, bool full = false) {
#ifdef __AMDGCN__
    return load_tile<ITEMS, N>(p, base, step, n, full);
#else
    if constexpr (N * sizeof(T) != 16) {
        return load_tile<ITEMS, N>(p, base, step, n, full);
    } else {
        Tile<T, ITEMS * N> tile;
        if (base >= N && base + (ITEMS - 1) * step + 2 * N <= n) {  // both packs lie within the row
#pragma unroll
            for (int k = 0; k < ITEMS; ++k) load_unaligned_vector<N>(p + (base + k * step), tile.v + k * N);
            return tile;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const I at = base + k * step;
            if (at >= N && at + 2 * N <= n) {
                load_unaligned_vector<N>(p + at, tile.v + k * N);
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j)
                    if (at + j < n) tile.v[k * N + j] = p[at + j];
            }
        }
        return tile;
    }
#endif
}

// ITEMS packs of p[0 .. n), which begins and ends at borders of packs. n is `most` or less.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_row_interior(const T* __restrict__ p, I base, I step, I n, I most) {
    Tile<T, ITEMS * N> tile;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (k * step < most && base + k * step < n) load_vector<N>(p + (base + k * step), tile.v + k * N);
    return tile;
}

template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_row_interior(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, I most) {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (k * step < most && base + k * step < n) store_vector<N>(p + (base + k * step), tile.v + k * N);
}
