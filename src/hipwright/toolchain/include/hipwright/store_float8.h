// Stores of vectors of floats as 8-bit floats.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/float8.h>
#include <hipwright/vector_access.h>

// Two codes in the lower bytes of a word, the first in the lowest. AMD's and NVIDIA's instructions convert pairs.
template <int FORMAT>
__device__ __forceinline__ unsigned float8_pair(float low, float high) {
#ifdef FLOAT8_PAIRS
    if constexpr (FORMAT == FLOAT8_E4M3FN) return saturated_float8_pair<FORMAT>(low, high);
#endif
    return Float8Number<FORMAT>(low).code | (unsigned)Float8Number<FORMAT>(high).code << 8;
}

// Stores floats as 8-bit floats, by words where there are four and more.
template <int N, int FORMAT>
__device__ void store_vector(Float8Number<FORMAT>* p, const float* v) {
    if constexpr (N % 4 == 0) {
        unsigned words[N / 4];
#pragma unroll
        for (int k = 0; k < N; k += 4)
            words[k / 4] = float8_pair<FORMAT>(v[k], v[k + 1]) | float8_pair<FORMAT>(v[k + 2], v[k + 3]) << 16;
#if HIPWRIGHT_AMD  // a pointer to words would promise an address that is a multiple of 4
        unsigned char codes[N];
        __builtin_memcpy(codes, words, N);
        store_vector<N>(reinterpret_cast<unsigned char*>(p), codes);
#else
        store_vector<N / 4>(reinterpret_cast<unsigned*>(p), words);
#endif
    } else {
        unsigned char codes[N];
#pragma unroll
        for (int k = 0; k < N; ++k) codes[k] = Float8Number<FORMAT>(v[k]).code;
        store_vector<N>(reinterpret_cast<unsigned char*>(p), codes);
    }
}
