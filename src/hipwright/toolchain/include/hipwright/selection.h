// Order-preserving integer keys and the sorting networks of top-k.
#pragma once
#include <hip/hip_runtime.h>

// Maps a value to bits whose unsigned order is that of the values; NaN is the largest, -0 equals 0.
__device__ __forceinline__ unsigned to_sortable(float x) {
    if (x != x) return 0xffffffffu;
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u);
}
__device__ __forceinline__ unsigned to_sortable(int x) { return (unsigned)x ^ 0x80000000u; }
__device__ __forceinline__ void from_sortable(unsigned bits, float& x) {
    x = __uint_as_float(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits);
}
__device__ __forceinline__ void from_sortable(unsigned bits, int& x) { x = (int)(bits ^ 0x80000000u); }

// A key whose descending order is that of the values, and of the indices among equal values.
template <bool LARGEST, typename T>
__device__ __forceinline__ unsigned long long make_key(T x, unsigned index) {
    return (unsigned long long)(LARGEST ? to_sortable(x) : ~to_sortable(x)) << 32 | ~index;
}

template <typename T, bool LARGEST>
__device__ __forceinline__ T key_value(unsigned long long key) {
    T x;
    from_sortable(LARGEST ? (unsigned)(key >> 32) : ~(unsigned)(key >> 32), x);
    return x;
}

// The rank of a value: the upper half of its key. A row without an element has 0.
template <bool LARGEST, typename T>
__device__ __forceinline__ unsigned to_rank(T x) {
    return LARGEST ? to_sortable(x) : ~to_sortable(x);
}

__device__ __forceinline__ void order_pair(unsigned& a, unsigned& b) {
    const unsigned larger = a > b ? a : b, smaller = a > b ? b : a;
    a = larger;
    b = smaller;
}

// Sorts groups of `size` keys (a power of two), largest first, by Batcher's bitonic network;
// ends with a barrier.
template <int THREADS>
__device__ void bitonic_sort_keys(unsigned long long* keys, int total, int size) {
    for (int k = 2; k <= size; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            for (int i = threadIdx.x; i < total / 2; i += THREADS) {
                const int a = 2 * i - (i & (j - 1));
                const unsigned long long x = keys[a], y = keys[a + j];
                if ((x < y) == ((a & (size - 1) & k) == 0)) {
                    keys[a] = y;
                    keys[a + j] = x;
                }
            }
            __syncthreads();
        }
}

// Sorts the best keys and the new_count keys behind them, largest first; ends with a barrier.
template <int THREADS, int BEST>
__device__ void merge_new_keys(unsigned long long* keys, int new_count) {
    int size = BEST;
    while (size < BEST + new_count) size *= 2;
    for (int i = BEST + new_count + threadIdx.x; i < size; i += THREADS) keys[i] = 0;
    __syncthreads();
    bitonic_sort_keys<THREADS>(keys, size, size);
}
