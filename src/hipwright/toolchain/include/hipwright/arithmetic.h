// Functions of one number of any type, division, and differences that are rounded separately.
#pragma once
#include <hip/hip_runtime.h>

// Returns a / b with an error of at most 2 ulp, and 0 where |b| exceeds 2^126. For denominators of 1 and more.
__device__ inline float fast_divide(float a, float b) {
    return __fdividef(a, b);
}
__device__ inline double fast_divide(double a, double b) {
    return a / b;
}

// Returns a / b with an error of at most 2 ulp (2.5 on AMD), for all operands: as the division is, it is infinite, zero
// or NaN. No branch: a rounded division takes twice as many instructions and a call that handles unusual operands.
__device__ __forceinline__ float divide_approx(float a, float b) {
#if defined(__CUDA_ARCH__)
    float quotient;
    asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
    return quotient;
#elif defined(__AMDGCN__)
    const float size = fabsf(b);  // v_rcp_f32 takes subnormal numbers for 0, and gives 0 instead of them
    const float scale = size > 0x1p96f ? 0x1p-32f : size < 0x1p-96f ? 0x1p32f : 1.0f;
    return a * __builtin_amdgcn_rcpf(b * scale) * scale;
#else
    return a / b;
#endif
}
__device__ inline double divide_approx(double a, double b) {
    return a / b;
}

// Returns a - b for operands that are rounded first: a product in a or b is never contracted into a fused multiply-add.
__device__ __forceinline__ float sub_rn(float a, float b) {
#ifdef __clang__
#pragma clang fp contract(off)
    return a - b;
#else
    return __fsub_rn(a, b);
#endif
}
__device__ __forceinline__ double sub_rn(double a, double b) {
#ifdef __clang__
#pragma clang fp contract(off)
    return a - b;
#else
    return __dsub_rn(a, b);
#endif
}

template <typename T>
__device__ T relu(T x) {
    return x < T(0) ? T(0) : x;  // NaN stays NaN
}

template <typename T>
__device__ T relu6(T x) {
    return x < T(0) ? T(0) : (x > T(6) ? T(6) : x);
}

template <typename T>
__device__ T square(T x) {
    return x * x;
}

template <typename T>
__device__ T cube(T x) {
    return x * x * x;
}

template <typename T>
__device__ T sign(T x) {
    return T((x > T(0)) - (x < T(0)));
}

template <typename T>
__device__ T absolute(T x) {
    return x < T(0) ? -x : (x == T(0) ? T(0) : x);
}
__device__ __forceinline__ float absolute(float x) {
    return fabsf(x);  // no instruction: what uses it takes the size of an operand
}
__device__ __forceinline__ double absolute(double x) {
    return fabs(x);
}

template <typename T>
__device__ T nan_max(T a, T b) {
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) == 4 && T(0.5f) != T(0)) {
        float found;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
        return found;
    }
#endif
#endif
    return (a > b || a != a) ? a : b;  // NaN wins, as in torch.max
}

template <typename T>
__device__ T nan_min(T a, T b) {
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) == 4 && T(0.5f) != T(0)) {
        float found;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
        return found;
    }
#endif
#endif
    return (a < b || a != a) ? a : b;  // NaN wins, as in torch.min
}
