// Helpers of stencils: scheduling, maxima and loads that are zero outside.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/target.h>
#include <hipwright/wide.h>

// Keeps AMD's compiler from hoisting the loads of all rows above the sums, and from
// vectorising sums of different rows: both would spill registers.
#if defined(__AMDGCN__)
__device__ __forceinline__ void pin_register(float& sum) { asm volatile("" : "+v"(sum)); }
__device__ __forceinline__ void pin_register(double& sum) { asm volatile("" : "+v"(sum)); }
template <typename T, int N>
__device__ __forceinline__ void pin_register(T (&sums)[N]) {
    #pragma unroll
    for (int k = 0; k < N; ++k) pin_register(sums[k]);
}
#endif
template <typename Sums>
__device__ __forceinline__ void schedule_barrier(Sums& acc) {
#if defined(__AMDGCN__)
    pin_register(acc);
    __builtin_amdgcn_sched_barrier(0);
#endif
}

// The larger value; NaN if one is NaN, as torch.max. One instruction where the device has it.
template <typename T>
__device__ __forceinline__ T pool_max(T a, T b) {
    return (a > b || a != a) ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float pool_max(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif

// Loads N aligned neighbours, or returns zeros. NVIDIA predicates the load: its address
// need not be valid.
template <int N, typename T>
__device__ __forceinline__ WideVector<T, N> load_or_zero(const T* p, long at, bool in_range) {
    constexpr int words = sizeof(T) * N / 4;
    struct alignas(words * 4) Words {
        unsigned v[words];
    };
#if HIPWRIGHT_AMD
    Words bits = *reinterpret_cast<const Words*>(p + (in_range ? at : 0));
    for (int k = 0; k < words; ++k) bits.v[k] = in_range ? bits.v[k] : 0u;
#else
    Words bits = {};
    if (in_range) bits = *reinterpret_cast<const Words*>(p + at);
#endif
    return __builtin_bit_cast(WideVector<T, N>, bits);
}
