#pragma once
#include <hip/hip_runtime.h>
#include "vector_access.h"

//@ with cp_async_wait_all
// A pack into LDS, where this thread alone reads it again. NVIDIA copies beside the registers, and cp_async_wait_all waits.
template <int N, typename T>
__device__ void cp_async_vector(T* to, const T* from) {
#ifdef __CUDA_ARCH__
    if constexpr (N * sizeof(T) == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from))
                     : "memory");
        return;
    }
#endif
    T v[N];
    load_vector<N>(from, v);
    __builtin_memcpy(to, v, sizeof(v));
}

__device__ void cp_async_wait_all() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

// A tile of p[0 .. n) into LDS, from this thread's place on and `across` elements a pack.
template <int ITEMS, int N, typename T, typename I>
__device__ void cp_async_tile(T* held, const T* __restrict__ p, I base, I step, I n, int across) {
    const bool fit = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        T* const to = held + k * across;
        if (fit && at + N <= n) {
            cp_async_vector<N>(to, p + at);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (at + j < n) to[j] = p[at + j];
        }
    }
}

// The same of a row of runs: element `at` lies at p[at / run * stride + at % run].
template <int ITEMS, int N, typename T, typename I>
__device__ void cp_async_strided_row(T* held, const T* __restrict__ p, I base, I step, I n, int across, I stride, I run) {
    const bool fit = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        const T* outer = p + at / run * stride;
        I inner = at % run;
        T* const to = held + k * across;
        if (fit && at + N <= n) {
            cp_async_vector<N>(to, outer + inner);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (at + j < n) to[j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}
