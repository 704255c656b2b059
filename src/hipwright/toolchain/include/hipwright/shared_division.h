// Divisions of many floats by one, rounded as single divisions are, or nearly so.
#pragma once
#include <hip/hip_runtime.h>

// Whether `divide_by` takes the divisor.
__device__ __forceinline__ bool is_plain_divisor(float divisor) {
    const float size = fabsf(divisor);
    return size >= 0x1p-60f && size <= 0x1p60f;
}

// x / divisor, with reciprocal = 1.0f / divisor. Rounded to nearest as the division is, where the quotient's size is
// between 2^-42 and 2^99, or it is 0, infinite or NaN; others keep that size. No branch, unlike a division: two steps
// of Newton's iteration with exact remainders (P. Markstein, IBM Journal of Research and Development 34, 1990).
__device__ __forceinline__ float divide_by(float x, float divisor, float reciprocal) {
    const float near = x * reciprocal, size = fabsf(near);
    const float nearer = fmaf(fmaf(-near, divisor, x), reciprocal, near);
    const float nearest = fmaf(fmaf(-nearer, divisor, x), reciprocal, nearer);
    return size > 0x1p-100f && size < 0x1p100f ? nearest : near;
}

// By what a divisor and what it divides are multiplied, so that the divisor's reciprocal is neither subnormal nor
// infinite and no quotient changes.
__device__ __forceinline__ float divisor_scale(float divisor) {
    const float size = fabsf(divisor);
    return size > 0x1p96f ? 0x1p-32f : size < 0x1p-96f ? 0x1p32f : 1.0f;
}

// x * scale / divisor for a divisor that is multiplied by its divisor_scale, with reciprocal = 1.0f / divisor. As the
// division is, it is infinite, zero or NaN; exact quotients are exact, others are off by 0.51 units in the last place,
// by 1.5 where the quotient's size is beyond 2^100 or below 2^-100. No branch: one step of Newton's iteration.
__device__ __forceinline__ float divide_closely(float x, float scale, float divisor, float reciprocal) {
    const float scaled = x * scale, near = scaled * reciprocal, size = fabsf(near);
    const float nearer = fmaf(fmaf(-near, divisor, scaled), reciprocal, near);
    return size > 0x1p-100f && size < 0x1p100f ? nearer : near;
}
