// Rounding to float16.
#pragma once
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

__device__ inline float round_half(float x) {
    return (float)__half(x);
}

__device__ inline double round_half(double x) {
    return (double)__half(x);
}
