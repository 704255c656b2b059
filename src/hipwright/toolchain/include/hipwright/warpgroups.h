// Products of half types by the warpgroup instructions of compute capability 9.0 (PTX ISA, "wgmma").
#pragma once
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>

// Whether the warpgroup instructions of compute capability 9.0 are used.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GEMM_WARPGROUPS 1
#else
#define GEMM_WARPGROUPS 0
#endif

#if GEMM_WARPGROUPS
#define EIGHT_SUMS(c, i)                                                                                              \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
        "+f"(c[i + 7])
// c = keep * c + A B of a warpgroup, 64 x 128 x 16 or 64 x 64 x 16, both in LDS.
__device__ __forceinline__ void warpgroup_mma(float (&c)[64], unsigned long long a, unsigned long long b, int keep) {
    asm volatile(
        "{ .reg .pred keep; setp.ne.b32 keep, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63} "
        ", %64, %65, keep, 1, 1, 0, 0; }"
        : EIGHT_SUMS(c, 0), EIGHT_SUMS(c, 8), EIGHT_SUMS(c, 16), EIGHT_SUMS(c, 24), EIGHT_SUMS(c, 32),
          EIGHT_SUMS(c, 40), EIGHT_SUMS(c, 48), EIGHT_SUMS(c, 56)
        : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void warpgroup_mma(float (&c)[32], unsigned long long a, unsigned long long b, int keep) {
    asm volatile(
        "{ .reg .pred keep; setp.ne.b32 keep, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31} "
        ", %32, %33, keep, 1, 1, 0, 0; }"
        : EIGHT_SUMS(c, 0), EIGHT_SUMS(c, 8), EIGHT_SUMS(c, 16), EIGHT_SUMS(c, 24)
        : "l"(a), "l"(b), "r"(keep));
}

// The descriptor of a tile in LDS whose rows have 128 bytes, swizzled; 32 bytes further are 2 more.
__device__ __forceinline__ unsigned long long warpgroup_descriptor(const __half* tile) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(tile);
    return (address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Keeps the compiler from moving accesses to registers that warpgroup instructions write.
template <int N>
__device__ __forceinline__ void pin_registers(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i]) : : "memory");
}
#endif

