// Types of aligned vectors.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/target.h>

// N neighbouring elements, loaded or stored by one access of at most 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) AlignedVector {
    T v[N];
};

// Whether vectors of N elements can be accessed at the address. AMD accesses them at any address.
template <typename T, int N>
__device__ bool is_vector_aligned(const T* p) {
#if HIPWRIGHT_AMD
    return true;
#else
    return N == 1 || (size_t)p % alignof(AlignedVector<T, N>) == 0;
#endif
}

// 16 bytes at any address, for streaming accesses.
#ifdef __clang__
typedef unsigned UnalignedBits128 __attribute__((ext_vector_type(4), aligned(1)));
#else
typedef uint4 UnalignedBits128;
#endif
