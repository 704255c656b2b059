#pragma once
#include <hip/hip_runtime.h>
#include "vector.h"

//@ key load_vector_streaming
// Loads N elements. Whole 16-byte words are streaming accesses, which leave the caches first.
template <int N, typename T>
__device__ void load_vector(const T* p, T* v) {
    if constexpr (N * sizeof(T) % 16 == 0) {
        UnalignedBits128 words[N * sizeof(T) / 16];
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            words[k] = __builtin_nontemporal_load(reinterpret_cast<const UnalignedBits128*>(p) + k);
        __builtin_memcpy(v, words, sizeof(words));
        return;
    }
#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const AlignedVector<T, N> vector = *reinterpret_cast<const AlignedVector<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = vector.v[k];
#endif
}

//@ key store_vector_streaming
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
#ifdef __AMDGCN__
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

// Marks memory that the last-level cache retains while written data leaves it first, where the device takes the hint.
template <typename T>
__device__ __forceinline__ const T* retain_in_cache(const T* p) {
#ifdef hw_kept
    return hw_kept(p);
#else
    return p;
#endif
}
