// Tiles of a row that a block keeps between passes: in LDS on NVIDIA, in registers on AMD.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/target.h>
#include <hipwright/vector_access.h>

// ROW_CACHE declares an array for SIZE elements of each of THREADS threads: in registers on AMD, which has more of them
// than LDS, and in LDS elsewhere. A thread's vectors begin at row_cache_rank() and lie row_cache_pitch() apart, counted
// in vectors. UNROLL_ROW_CACHE unrolls the loop that follows, where the array is in registers.
#if HIPWRIGHT_AMD
#define ROW_CACHE(T, NAME, SIZE, THREADS) T NAME[(SIZE) ? (SIZE) : 1]
#define UNROLL_ROW_CACHE _Pragma("unroll")
__device__ __forceinline__ int row_cache_rank() { return 0; }
template <int THREADS>
__device__ __forceinline__ constexpr int row_cache_pitch() {
    return 1;
}
#else
#define ROW_CACHE(T, NAME, SIZE, THREADS) __shared__ __align__(16) T NAME[(SIZE) ? (SIZE) * (THREADS) : 1]
#define UNROLL_ROW_CACHE
__device__ __forceinline__ int row_cache_rank() { return threadIdx.x; }
template <int THREADS>
__device__ __forceinline__ constexpr int row_cache_pitch() {
    return THREADS;
}
#endif

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
__device__ inline void cp_async_wait_all() {
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
