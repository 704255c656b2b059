#pragma once
#include <hip/hip_runtime.h>
#include "vector.h"

template <int N, typename T>
__device__ void read_pack(const T* p, T* v) {
#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = pack.v[k];
#endif
}

template <int N, typename T>
__device__ void write_pack(T* p, const T* v) {
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

//@ key write_float16
// Floats leave as half types two at a time: one instruction for both where the device has it.
// As words: CUDA copies its own pairs one by one, and a pack would be written 4 bytes at a time.
template <int N>
__device__ void write_pack(__half* p, const float* v) {
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
    write_pack<(N + 1) / 2>(reinterpret_cast<unsigned*>(p), words);
}
