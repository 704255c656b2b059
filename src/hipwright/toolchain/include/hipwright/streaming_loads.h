// load_vector as a streaming access: the data leaves the caches first. Included before the headers that call it.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/vector.h>

#define HIPWRIGHT_STREAMING_LOADS 1  // vector_access.h leaves this function to this header

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
#if HIPWRIGHT_AMD
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const AlignedVector<T, N> vector = *reinterpret_cast<const AlignedVector<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = vector.v[k];
#endif
}
