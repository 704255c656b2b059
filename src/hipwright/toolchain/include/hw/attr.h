// Attributes and words that every header here uses: AMD device code, host code (the cpu target) and NVRTC share them.
#pragma once

#define HIPWRIGHT_HEADERS 1
#if defined(__AMDGCN__)
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
// (threads) or (threads, waves per SIMD): HIP's meaning of the second argument on AMD
#define HW_BOUNDS1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define HW_BOUNDS2(threads, waves) __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define HW_BOUNDS_PICK(a, b, chosen, ...) chosen
#define __launch_bounds__(...) HW_BOUNDS_PICK(__VA_ARGS__, HW_BOUNDS2, HW_BOUNDS1, )(__VA_ARGS__)
#define HW_AMD 1
#elif defined(__CUDACC_RTC__) // NVRTC has the words; hw/nvidia_base.h comes before all else
#undef __launch_bounds__
// The second argument counts waves a SIMD: at least one block a multiprocessor is all that it can say here. That lets
// ptxas use the registers it needs; of its own it may stop at 80 and spill.
#define HW_BOUNDS1(threads) __attribute__((launch_bounds(threads)))
#define HW_BOUNDS2(threads, waves) __attribute__((launch_bounds(threads, 1)))
#define HW_BOUNDS_PICK(a, b, chosen, ...) chosen
#define __launch_bounds__(...) HW_BOUNDS_PICK(__VA_ARGS__, HW_BOUNDS2, HW_BOUNDS1, )(__VA_ARGS__)
#define HW_AMD 0
#else // hw/cpu.h gives __global__, __shared__ and __constant__
#define __host__
#define __device__
#define __launch_bounds__(...)
#define HW_AMD 0
#if defined(__x86_64__) && !defined(__FMA__)
#error "hipwright's headers need fused multiply-add: compile with -march=x86-64-v3"
#endif
#endif

#ifndef __CUDACC_RTC__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#ifndef __restrict__
#define __restrict__ __restrict
#endif
#define __align__(n) __attribute__((aligned(n)))
#endif
#define HW_FN static inline __host__ __device__ __attribute__((always_inline, unused))
#define HW_CFN static constexpr inline __host__ __device__ __attribute__((always_inline, unused))
#define HW_METHOD inline __host__ __device__ __attribute__((always_inline))

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
#ifndef NULL
#define NULL 0
#endif

// hw_bits<To>(value): the value's bits as another type of the same size.
template <class HwTo, class HwFrom> HW_CFN HwTo hw_bits(HwFrom value) { return __builtin_bit_cast(HwTo, value); }
