#pragma once
#include <hip/hip_runtime.h>
#include "vector_access.h"

//@ with cp_async_wait_all
// Copies a vector to LDS; on NVIDIA asynchronously, without registers, if it has 16 bytes. Only this thread may read
// it, after cp_async_wait_all.
template <int N, typename T>
__device__ void cp_async_vector(T* destination, const T* source) {
#ifdef __CUDA_ARCH__
    if constexpr (N * sizeof(T) == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"((unsigned)__cvta_generic_to_shared(destination)), "l"(__cvta_generic_to_global(source))
                     : "memory");
        return;
    }
#endif
    T v[N];
    load_vector<N>(source, v);
    __builtin_memcpy(destination, v, sizeof(v));
}

// Waits for the asynchronous copies of this thread.
__device__ void cp_async_wait_all() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

// Copies a tile of the row p[0, n), laid out as load_tile has it, to LDS, where vectors begin `stride_lds` elements
// apart.
template <int ITEMS, int N, typename T, typename I>
__device__ void cp_async_tile(T* cache, const T* __restrict__ p, I base, I step, I n, int stride_lds) {
    const bool aligned = is_vector_aligned<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        T* const destination = cache + k * stride_lds;
        if (aligned && index + N <= n) {
            cp_async_vector<N>(destination, p + index);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (index + j < n) destination[j] = p[index + j];
        }
    }
}

// cp_async_tile for a strided row: element `index` lies at p[index / run * stride + index % run].
template <int ITEMS, int N, typename T, typename I>
__device__ void cp_async_strided_row(T* cache, const T* __restrict__ p, I base, I step, I n, int stride_lds,
                                     I stride, I run) {
    const bool aligned = N == 1 || (run % N == 0 && is_vector_aligned<T, N>(p) && is_vector_aligned<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I index = base + k * step;
        const T* outer = p + index / run * stride;
        I inner = index % run;
        T* const destination = cache + k * stride_lds;
        if (aligned && index + N <= n) {
            cp_async_vector<N>(destination, outer + inner);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (index + j < n) destination[j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}
