// Vectors of a row whose ends are neighbours (periodic boundaries), moved by one element.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// The elements STEP behind those of a tile that load_whole_vectors has loaded from p: all but one of each vector are in
// the tile. STEP: 1 or -1.
template <int ITEMS, int N, int STEP, typename T, typename I>
__device__ Tile<T, ITEMS * N> roll_vectors(const Tile<T, ITEMS * N>& tile, const T* __restrict__ p, I base, I step,
                                           I n) {
    Tile<T, ITEMS * N> rolled = {};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I first = base + k * step;
        if (first >= n) continue;
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (j + STEP >= 0 && j + STEP < N) rolled.v[k * N + j] = tile.v[k * N + j + STEP];
        if (STEP < 0) rolled.v[k * N] = p[first > 0 ? first - 1 : n - 1];
        if (STEP > 0) rolled.v[k * N + N - 1] = p[first + N < n ? first + N : 0];
    }
    return rolled;
}
