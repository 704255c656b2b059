// Functions for kernels whose results are all half types: off by a few units of float, and a fraction of the instructions
// of the exact ones. Both sides of a choice are computed before it, so that no compiler branches.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>

__device__ inline float exp_fast(float x) {
    // off by |x| units of float, far below one of a half type; below 2^-126 it is 0, as AMD's __expf is
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
#else
    return __expf(x);
#endif
}

__device__ inline float sqrt_fast(float x) {
    // the hardware instruction, 1 ulp off; sqrtf takes twice as many instructions and a branch
#if defined(__CUDA_ARCH__)
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif defined(__AMDGCN__)
    const bool tiny = x < 0x1p-96f;  // the instruction treats subnormal numbers as 0
    const float y = __builtin_amdgcn_sqrtf(tiny ? x * 0x1p32f : x);
    return tiny ? y * 0x1p-16f : y;
#else
    return sqrtf(x);
#endif
}

__device__ inline float expm1_fast(float x) {
    // 2^-19 of the result: below a quarter by the series, elsewhere the 1 cancels little
    const float series = x * (1.0f + x * (0.5f + x * (1.0f / 6 + x * (1.0f / 24 + x * (1.0f / 120)))));
    const float difference = exp_fast(x) - 1.0f;
    return fabsf(x) < 0.25f ? series : difference;
}

__device__ inline float log1p_exp_fast(float x) {
    // log(1 + exp(x)) up to x = 80: of small exponentials by the series
    const float t = exp_fast(x);
    const float tail = 1.0f / 3 - t * (0.25f - t * (0.2f - t * (1.0f / 6)));
    const float series = t * (1.0f - t * (0.5f - t * tail)), logarithm = __logf(1.0f + t);
    return t < 0.125f ? series : logarithm;
}

__device__ inline float reciprocal_fast(float x) {
    // 1 / x for x of 1 and more: 1 ulp off, and 0 beyond 2^126
#if defined(__CUDA_ARCH__)
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif defined(__AMDGCN__)
    return __builtin_amdgcn_rcpf(x);
#else
    return 1.0f / x;
#endif
}

__device__ inline float sigmoid_fast(float x) {
    return reciprocal_fast(1.0f + exp_fast(-x));
}

__device__ inline float silu_fast(float x) {
    return x * reciprocal_fast(1.0f + exp_fast(-x));
}

__device__ inline float mish_fast(float x) {
    // tanh(log(1 + n)) = (n * n + 2 * n) / (n * n + 2 * n + 2); from 20 on it is 1
    const float n = exp_fast(nan_min(x, 20.0f)), share = n * (n + 2.0f);
    return x * (share * reciprocal_fast(share + 2.0f));
}

__device__ inline float selu_fast(float x) {
    const float below = 1.6732632423543772f * expm1_fast(x);
    return 1.0507009873554805f * (x > 0.0f ? x : below);
}

__device__ inline float elu_fast(float x, float alpha, float scale, float input_scale) {
    const float below = alpha * scale * expm1_fast(x * input_scale);
    return x > 0.0f ? x * scale : below;
}

__device__ inline float celu_fast(float x, float alpha) {
    const float below = alpha * expm1_fast(divide_approx(x, alpha));
    return x > 0.0f ? x : below;
}

__device__ inline float softplus_fast(float x, float beta, float threshold) {
    const float below = divide_approx(log1p_exp_fast(x * beta), beta);
    return x * beta > threshold ? x : below;
}
