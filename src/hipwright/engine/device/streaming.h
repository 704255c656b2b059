#pragma once
#include <hip/hip_runtime.h>
#include "vector.h"

//@ key read_pack_streaming
template <int N, typename T>
__device__ void read_pack(const T* p, T* v) {
    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            words[k] = __builtin_nontemporal_load(reinterpret_cast<const Passing*>(p) + k);
        __builtin_memcpy(v, words, sizeof(words));
        return;
    }
#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = pack.v[k];
#endif
}

//@ key write_pack_streaming
template <int N, typename T>
__device__ void write_pack(T* p, const T* v) {
    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            __builtin_nontemporal_store(words[k], reinterpret_cast<Passing*>(p) + k);
        return;
    }
#ifdef __AMDGCN__
    __builtin_memcpy(p, v, N * sizeof(T));
#else
    if constexpr (N * sizeof(T) % 16 == 0) {  // NVRTC may take the store of a pack's elements apart, but not this
        uint4 words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k) reinterpret_cast<uint4*>(p)[k] = words[k];
    } else {
        Pack<T, N> pack;
#pragma unroll
        for (int k = 0; k < N; ++k) pack.v[k] = v[k];
        *reinterpret_cast<Pack<T, N>*>(p) = pack;
    }
#endif
}

// What is read stays in the last cache and what is written leaves it first, where the device takes the hint.
template <typename T>
__device__ __forceinline__ const T* kept(const T* p) {
#ifdef hw_kept
    return hw_kept(p);
#else
    return p;
#endif
}
