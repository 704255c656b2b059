#pragma once
#include <hip/hip_runtime.h>
#include "vector_access.h"

//@ with AlignedVector is_vector_aligned load_vector store_vector
// What one thread takes at a time: SIZE elements in registers.
template <typename T, int SIZE>
struct Tile {
    T v[SIZE];
};

// load_tile for types of two bytes: whether the address suits packs or not, pairs come in words, which
// cost one instruction an element less than halves that two loads could have made.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_tile_16bit(const T* __restrict__ p, I base, I step, I n, bool full) {
    unsigned words[(ITEMS * N + 1) / 2];
    const bool fit = is_vector_aligned<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;  // no pack lies across n
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (uncut && !full && at >= n) continue;
        if (fit && (full || uncut || at + N <= n)) {
            load_vector<(N + 1) / 2>(reinterpret_cast<const unsigned*>(p + at), words + k * N / 2);
        } else {
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                unsigned short pair[2] = {0, 0};
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if (!full && at + j + i >= n) continue;
                    const T one = p[at + j + i];
                    __builtin_memcpy(pair + i, &one, 2);
                }
                words[(k * N + j) / 2] = pair[0] | (unsigned)pair[1] << 16;
            }
        }
    }
    Tile<T, ITEMS * N> tile;
#pragma unroll
    for (int k = 0; k < ITEMS * N; ++k) {
        const unsigned short bits = words[k / 2] >> k % 2 * 16;
        __builtin_memcpy(tile.v + k, &bits, 2);
    }
    return tile;
}

// ITEMS packs of p[0 .. n), the first at `base`, `step` elements apart; all are asked for at once. Where
// tiles are `full`, as they may be known to be, n cuts none short.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_tile(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    if (sizeof(T) == 2 && N % 2 == 0) return load_tile_16bit<ITEMS, N>(p, base, step, n, full);
    Tile<T, ITEMS * N> tile;
    const bool fit = is_vector_aligned<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;  // no pack lies across n
    if (fit && (full || uncut || base + (ITEMS - 1) * step + N <= n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            if (full || base + k * step < n) load_vector<N>(p + (base + k * step), tile.v + k * N);
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (fit && (full || at + N <= n)) {
            load_vector<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) tile.v[k * N + j] = p[at + j];
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_tile(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool fit = is_vector_aligned<T, N>(p), uncut = (((n - base) | step) & (N - 1)) == 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (k * step >= n) continue;  // no thread's; of a known n no text is left
        const I at = base + k * step;
        if (fit && (full || (uncut ? at < n : at + N <= n))) {
            store_vector<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || at + j < n) p[at + j] = T(tile.v[k * N + j]);
        }
    }
}

//@ with load_whole_vectors store_whole_vectors
// Does each of a thread's packs lie before n or behind it? Known when compiling where N divides n.
template <int ITEMS, int N, typename I>
__device__ bool has_whole_vectors(I base, I step, I n) {
    return n % N == 0 || base + (ITEMS - 1) * step + N <= n;
}

// As load_tile for whole packs: no test an element, and half types stay together. Zeros behind n.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_whole_vectors(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
    const bool fit = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        if (fit) {
            load_vector<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = p[at + j];
        }
    }
    return tile;
}

template <int ITEMS, int N, typename T, typename I>
__device__ void store_whole_vectors(T* __restrict__ p, I base, I step, I n, const Tile<T, ITEMS * N>& tile) {
    const bool fit = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        if (at >= n) continue;
        if (fit) {
            store_vector<N>(p + at, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) p[at + j] = tile.v[k * N + j];
        }
    }
}

// How many of a thread's elements lie before n; they are the first ones of its tile.
template <int ITEMS, int N, typename I>
__device__ int valid_elements(I base, I step, I n, bool full = false) {
    if (full || base + (ITEMS - 1) * step + N <= n) return ITEMS * N;
    int count = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I left = n - base - k * step;
        count += left < 0 ? 0 : (left < N ? (int)left : N);
    }
    return count;
}

// Values that stay in registers as memory has them, two a register: the compiler is to convert them
// again for the next pass, not to keep a float of each from here on. Of a word all bytes stay where they are.
template <typename T, int N>
__device__ void keep_packed(T (&v)[N]) {
#if defined(__AMDGCN__) || defined(__CUDA_ARCH__)
#pragma unroll
    for (int k = 0; k + 1 < N; k += 2) {
        unsigned word;
        __builtin_memcpy(&word, v + k, 4);
#ifdef __AMDGCN__
        word = __builtin_amdgcn_perm(word, word, 0x03020100);
#else
        word = __byte_perm(word, 0, 0x3210);
#endif
        __builtin_memcpy(v + k, &word, 4);
    }
#endif
}

// Is n at most `most`? On AMD only where the compiler knows it: tests of the elements of two rows
// in registers, of a length unknown, spilled hundreds of registers.
template <typename I>
__device__ __forceinline__ bool is_known_at_most(I n, I most) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n) && n <= most;
#else
    return n <= most;
#endif
}

// Is a test before each pack worth it? On AMD only where the size is a constant: else its branches
// cost registers.
template <typename I>
__device__ __forceinline__ bool vector_test_pays(I n) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n);
#else
    return true;
#endif
}
