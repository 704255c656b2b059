// Rounding to bfloat16.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/bfloat16_type.h>

__device__ inline float round_bfloat16(float x) {
    return (float)__hip_bfloat16(x);
}

__device__ inline double round_bfloat16(double x) {
    return (double)__hip_bfloat16(x);
}
