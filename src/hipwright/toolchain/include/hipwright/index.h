// Index arithmetic.
#pragma once
#include <hip/hip_runtime.h>

__device__ inline long wrap_index(long i, long n) {
    return i < 0 ? i + n : i;
}

__device__ inline long reflect_index(long i, long n) {
    i = i < 0 ? -i : i;
    return i >= n ? 2 * (n - 1) - i : i;
}

__device__ inline long replicate_index(long i, long n) {
    return i < 0 ? 0 : (i >= n ? n - 1 : i);
}

__device__ inline long circular_index(long i, long n) {
    return i < 0 ? i + n : (i >= n ? i - n : i);
}

__device__ inline long nearest_index(long i, float ratio, long n) {
    const long k = (long)floorf((float)i * ratio);
    return k < n - 1 ? k : n - 1;
}

__device__ inline long nearest_exact_index(long i, float ratio, long n) {
    const long k = (long)floorf(((float)i + 0.5f) * ratio);
    return k < n - 1 ? k : n - 1;
}
