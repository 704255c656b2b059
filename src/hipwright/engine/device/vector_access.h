#pragma once
#include <hip/hip_runtime.h>
#include "vector.h"

// Loads N neighbouring elements, by one access if they fit 16 bytes.
template <int N, typename T>
__device__ void load_vector(const T* p, T* v) {
#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const AlignedVector<T, N> vector = *reinterpret_cast<const AlignedVector<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = vector.v[k];
#endif
}

// Stores N neighbouring elements, by one access if they fit 16 bytes.
template <int N, typename T>
__device__ void store_vector(T* p, const T* v) {
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

//@ key store_vector_float16
// Stores floats as half types. Two are converted by one instruction where the device has it, and pairs are stored as
// words, because CUDA copies its own pair types one by one, 4 bytes at a time.
template <int N>
__device__ void store_vector(__half* p, const float* v) {
    if (N == 1) {
        p[0] = __half(v[0]);
        return;
    }
    unsigned words[(N + 1) / 2];
#pragma unroll
    for (int k = 0; k + 1 < N; k += 2) {
        const __half2 pair = __float22half2_rn(float2{v[k], v[k + 1]});
        __builtin_memcpy(words + k / 2, &pair, 4);
    }
    store_vector<(N + 1) / 2>(reinterpret_cast<unsigned*>(p), words);
}
