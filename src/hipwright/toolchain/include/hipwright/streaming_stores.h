// store_vector as a streaming access: the data leaves the caches first. Included before the headers that call it.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/vector.h>

#define HIPWRIGHT_STREAMING_STORES 1  // vector_access.h leaves this function to this header

// Stores N elements. Whole 16-byte words are streaming accesses, which leave the caches first.
template <int N, typename T>
__device__ void store_vector(T* p, const T* v) {
    if constexpr (N * sizeof(T) % 16 == 0) {
        UnalignedBits128 words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            __builtin_nontemporal_store(words[k], reinterpret_cast<UnalignedBits128*>(p) + k);
        return;
    }
#if HIPWRIGHT_AMD
    __builtin_memcpy(p, v, N * sizeof(T));
#else
    if constexpr (N * sizeof(T) % 16 == 0) {  // NVRTC may split the store of a struct, but not this
        uint4 words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k) reinterpret_cast<uint4*>(p)[k] = words[k];
    } else {
        AlignedVector<T, N> vector;
#pragma unroll
        for (int k = 0; k < N; ++k) vector.v[k] = v[k];
        *reinterpret_cast<AlignedVector<T, N>*>(p) = vector;
    }
#endif
}
