// Hints of what the last-level cache retains.
#pragma once
#include <hip/hip_runtime.h>

// Marks memory that the last-level cache retains while written data leaves it first, where the device takes the hint.
template <typename T>
__device__ __forceinline__ const T* retain_in_cache(const T* p) {
#ifdef hw_kept
    return hw_kept(p);
#else
    return p;
#endif
}
