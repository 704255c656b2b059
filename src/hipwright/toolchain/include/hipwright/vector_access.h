// Loads and stores of N neighbouring elements by one access.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/vector.h>

#ifndef HIPWRIGHT_STREAMING_LOADS
// Loads N neighbouring elements, by one access if they fit 16 bytes.
template <int N, typename T>
__device__ void load_vector(const T* p, T* v) {
#if HIPWRIGHT_AMD
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const AlignedVector<T, N> vector = *reinterpret_cast<const AlignedVector<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = vector.v[k];
#endif
}
#endif

#ifndef HIPWRIGHT_STREAMING_STORES
// Stores N neighbouring elements, by one access if they fit 16 bytes.
template <int N, typename T>
__device__ void store_vector(T* p, const T* v) {
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
#endif
