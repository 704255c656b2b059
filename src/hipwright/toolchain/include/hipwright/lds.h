// Vector accesses and index swizzles of LDS.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/wide.h>

// Stores N neighbouring elements to LDS by one access of at most 16 bytes.
template <typename T, int N>
__device__ __forceinline__ void store_lds_vector(T* destination, const T (&values)[N]) {
    WideVector<T, N> vec;
    for (int v = 0; v < N; ++v) vec.v[v] = values[v];
    *reinterpret_cast<WideVector<T, N>*>(destination) = vec;
}

// Index of an element of an LDS tile whose 16-byte vectors are permuted by the row, so that
// rows lie on different banks.
__device__ __forceinline__ int swizzled_index(int row, int column, int width) {
    return row * width + ((column / 4) ^ (row & 7)) * 4 + column % 4;
}
