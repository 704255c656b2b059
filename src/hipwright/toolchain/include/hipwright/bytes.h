// Vectors of 1-byte elements, kept in words and extracted on access.
#pragma once
#include <hip/hip_runtime.h>

// N neighbouring bytes, kept in the words that were loaded; an element is extracted on access.
template <typename T, int N>
struct ByteWords {
    unsigned words[N / 4];
    __device__ T operator[](int k) const { return (T)(words[k / 4] >> k % 4 * 8); }
};

template <typename T, int N>
struct ByteVector {
    ByteWords<T, N> v;
};

template <int N, typename T>
__device__ __forceinline__ ByteVector<T, N> load_bytes(const T* p) {
    ByteVector<T, N> vector;
    if constexpr (N % 16 == 0) {
#pragma unroll
        for (int k = 0; k < N / 16; ++k) {
            const uint4 quad = reinterpret_cast<const uint4*>(p)[k];
            __builtin_memcpy(vector.v.words + 4 * k, &quad, 16);
        }
    } else if constexpr (N == 8) {
        const uint2 pair = *reinterpret_cast<const uint2*>(p);
        __builtin_memcpy(vector.v.words, &pair, 8);
    } else {
#pragma unroll
        for (int k = 0; k < N / 4; ++k) vector.v.words[k] = reinterpret_cast<const unsigned*>(p)[k];
    }
    return vector;
}

// Returns v[k] - offset as a float, exactly (see small_int_to_float).
template <typename T, int N>
__device__ __forceinline__ float byte_to_float(const ByteWords<T, N>& v, int k, float offset) {
#ifdef __CUDA_ARCH__
    const unsigned high = T(-1) < T(0) ? 128 : 0;  // 128 is added to signed bytes
    const unsigned bits = __byte_perm(v.words[k / 4] ^ high * 0x01010101u, 0x4b000000u, 0x7540 | k % 4);
    return __int_as_float(bits) - (8388608.0f + high + offset);
#else
    return (float)v[k] - offset;
#endif
}
