#pragma once
#include <hip/hip_runtime.h>

// N neighbours; as wide an access as the device has.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) AlignedVector {
    T v[N];
};

// Does the address suit packs? AMD reads and writes them anywhere.
template <typename T, int N>
__device__ bool is_vector_aligned(const T* p) {
#ifdef __AMDGCN__
    return true;
#else
    return N == 1 || (size_t)p % alignof(AlignedVector<T, N>) == 0;
#endif
}

// 16 bytes at any address; nobody needs them again soon, so they leave the caches first.
#ifdef __clang__
typedef unsigned UnalignedBits128 __attribute__((ext_vector_type(4), aligned(1)));
#else
typedef uint4 UnalignedBits128;
#endif
