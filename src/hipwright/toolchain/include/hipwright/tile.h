// Tiles: the elements of a row that a thread processes at a time. Loads set the elements that they do not read to zero:
// an undefined value counts as equal in all lanes, and behind a branch on it a warp need not come together again.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/vector_access.h>

// The elements that a thread processes at a time, in registers.
template <typename T, int SIZE>
struct Tile {
    T v[SIZE];
};

// Loads N elements of 2 bytes at an aligned address as words.
template <int N, typename T>
__device__ void load_words(const T* p, unsigned* words) {
#if HIPWRIGHT_AMD  // a pointer to words would promise an address that is a multiple of 4
    T pairs[N];
    load_vector<N>(p, pairs);
    __builtin_memcpy(words, pairs, N * sizeof(T));
#else
    load_vector<(N + 1) / 2>(reinterpret_cast<const unsigned*>(p), words);
#endif
}

// Loads the first `count` of N elements of 2 bytes, at any address, as words; the others are zero.
template <int N, typename T, typename I>
__device__ void load_word_elements(const T* p, I count, unsigned* words) {
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        unsigned short pair[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (j + i >= count) continue;
            const T element = p[j + i];
            __builtin_memcpy(pair + i, &element, 2);
        }
        words[j / 2] = pair[0] | (unsigned)pair[1] << 16;
    }
}

// The tile whose elements of 2 bytes lie in pairs in words.
template <typename T, int SIZE>
__device__ Tile<T, SIZE> tile_of_words(const unsigned* words) {
    Tile<T, SIZE> tile = {};
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        const unsigned short bits = words[k / 2] >> k % 2 * 16;
        __builtin_memcpy(tile.v + k, &bits, 2);
    }
    return tile;
}

// load_tile for 2-byte types. Elements arrive in pairs, as words, whether the address is aligned or not: a value that
// either of two loads may have produced would cost an extra instruction.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_tile_16bit(const T* __restrict__ p, I base, I step, I n, bool full) {
    unsigned words[(ITEMS * N + 1) / 2] = {};
    const bool aligned = is_vector_aligned<T, N>(p), whole = (((n - base) | step) & (N - 1)) == 0;  // n cuts no vector
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (whole && !full && index >= n) continue;
        if (aligned && (full || whole || index + N <= n)) {
            load_words<N>(p + index, words + k * N / 2);
        } else {
            load_word_elements<N>(p + index, full ? (I)N : n - index, words + k * N / 2);
        }
    }
    return tile_of_words<T, ITEMS * N>(words);
}

// Loads a thread's tile of the row p[0, n): ITEMS vectors of N elements, the first at `base`, `step` elements apart.
// All loads are issued before the first is used. full: the caller knows that n cuts no tile.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_tile(const T* __restrict__ p, I base, I step, I n, bool full = false) {
    if (sizeof(T) == 2 && N % 2 == 0) return load_tile_16bit<ITEMS, N>(p, base, step, n, full);
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = is_vector_aligned<T, N>(p), whole = (((n - base) | step) & (N - 1)) == 0;  // n cuts no vector
    if (aligned && (full || whole || base + (ITEMS - 1) * step + N <= n)) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k)
            if (full || base + k * step < n) load_vector<N>(p + (base + k * step), tile.v + k * N);
        return tile;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (aligned && (full || index + N <= n)) {
            load_vector<N>(p + index, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || index + j < n) tile.v[k * N + j] = p[index + j];
        }
    }
    return tile;
}

// Stores a tile, laid out as load_tile has it.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_tile(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile, bool full = false) {
    const bool aligned = is_vector_aligned<T, N>(p), whole = (((n - base) | step) & (N - 1)) == 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        if (k * step >= n) continue;  // beyond the row for every thread; removed at compile time if n is known
        const I index = base + k * step;
        if (aligned && (full || (whole ? index < n : index + N <= n))) {
            store_vector<N>(p + index, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (full || index + j < n) p[index + j] = T(tile.v[k * N + j]);
        }
    }
}

// Whether n cuts none of a thread's vectors. Known at compile time if N divides n.
template <int ITEMS, int N, typename I>
__device__ bool has_whole_vectors(I base, I step, I n) {
    return n % N == 0 || base + (ITEMS - 1) * step + N <= n;
}

// load_tile where n cuts no vector: no test per element, and half types stay in pairs. Elements beyond n are zero.
template <int ITEMS, int N, typename T, typename I>
__device__ Tile<T, ITEMS * N> load_whole_vectors(const T* __restrict__ p, I base, I step, I n) {
    Tile<T, ITEMS * N> tile = {};
    const bool aligned = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        if (aligned) {
            load_vector<N>(p + index, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) tile.v[k * N + j] = p[index + j];
        }
    }
    return tile;
}

// store_tile where n cuts no vector.
template <int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_whole_vectors(T* __restrict__ p, I base, I step, I n, const Tile<V, ITEMS * N>& tile) {
    const bool aligned = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        if (index >= n) continue;
        if (aligned) {
            store_vector<N>(p + index, tile.v + k * N);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) p[index + j] = T(tile.v[k * N + j]);
        }
    }
}

// The number of a thread's elements that lie before n. They come first in its tile.
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

// Keeps 2-byte values packed, two in a register, until they are used again: an opaque permutation, the identity, keeps
// the compiler from holding a converted float of each instead.
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

// Whether n <= maximum; on AMD only if the compiler knows it, because tests of a run-time length for each element of
// two rows in registers spilled hundreds of registers.
template <typename I>
__device__ __forceinline__ bool is_known_at_most(I n, I maximum) {
#if HIPWRIGHT_AMD
    return __builtin_constant_p(n) && n <= maximum;
#else
    return n <= maximum;
#endif
}

// Whether a bounds test per vector pays. On AMD only if the size is a compile-time constant: otherwise its branches
// cost registers.
template <typename I>
__device__ __forceinline__ bool vector_test_pays(I n) {
#if HIPWRIGHT_AMD
    return __builtin_constant_p(n);
#else
    return true;
#endif
}
