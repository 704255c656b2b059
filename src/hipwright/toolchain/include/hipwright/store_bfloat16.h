// Stores of vectors of floats as bfloat16.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/bfloat16_type.h>
#include <hipwright/vector_access.h>

// Stores floats as half types. Two are converted by one instruction where the device has it, and pairs are stored as
// words, because CUDA copies its own pair types one by one, 4 bytes at a time.
template <int N>
__device__ void store_vector(__hip_bfloat16* p, const float* v) {
    if (N == 1) {
        p[0] = __hip_bfloat16(v[0]);
        return;
    }
    unsigned words[(N + 1) / 2];
#pragma unroll
    for (int k = 0; k + 1 < N; k += 2) {
        const __hip_bfloat162 pair = __float22bfloat162_rn(float2{v[k], v[k + 1]});
        __builtin_memcpy(words + k / 2, &pair, 4);
    }
#if HIPWRIGHT_AMD  // a pointer to words would promise an address that is a multiple of 4
    __hip_bfloat16 halves[N];
    __builtin_memcpy(halves, words, sizeof(halves));
    store_vector<N>(p, halves);
#else
    store_vector<(N + 1) / 2>(reinterpret_cast<unsigned*>(p), words);
#endif
}
