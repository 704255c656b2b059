// HIP on NVIDIA for nvcc: the names of HIP's runtime that extensions use, over CUDA's.
#pragma once
#include <cuda_runtime.h>
#define __HIP_PLATFORM_NVIDIA__ 1
#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipErrorInvalidValue cudaErrorInvalidValue
#define hipStream_t cudaStream_t
#define hipEvent_t cudaEvent_t
#define hipDeviceProp_t cudaDeviceProp
#define hipGetDeviceProperties cudaGetDeviceProperties
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetErrorString cudaGetErrorString
#define hipGetErrorName cudaGetErrorName
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipStreamSynchronize cudaStreamSynchronize
#define hipMalloc cudaMalloc
#define hipMallocAsync cudaMallocAsync
#define hipFree cudaFree
#define hipFreeAsync cudaFreeAsync
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemcpyKind cudaMemcpyKind
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipFuncSetAttribute cudaFuncSetAttribute
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipLaunchKernel cudaLaunchKernel
#define hipOccupancyMaxPotentialBlockSize cudaOccupancyMaxPotentialBlockSize
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(T, name) extern __shared__ T name[];
#define hipLaunchKernelGGL(kernel, grid, block, lds, stream, ...) (kernel)<<<(grid), (block), (lds), (stream)>>>(__VA_ARGS__)
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#if defined(__CUDACC__)
template <class T> __device__ __forceinline__ T __shfl(T v, int lane, int width = 32) { return __shfl_sync(__activemask(), v, lane, width); }
template <class T> __device__ __forceinline__ T __shfl_up(T v, unsigned d, int width = 32) { return __shfl_up_sync(__activemask(), v, d, width); }
template <class T> __device__ __forceinline__ T __shfl_down(T v, unsigned d, int width = 32) { return __shfl_down_sync(__activemask(), v, d, width); }
template <class T> __device__ __forceinline__ T __shfl_xor(T v, int m, int width = 32) { return __shfl_xor_sync(__activemask(), v, m, width); }
#define __ballot(p) ((unsigned long long)__ballot_sync(__activemask(), (p)))
#define __any(p) __any_sync(__activemask(), (p))
#define __all(p) __all_sync(__activemask(), (p))
__device__ __forceinline__ unsigned __lane_id() { unsigned l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l; }
// clang's atomics: a word of at most 8 bytes is read and written whole; orders stronger than relaxed become fences.
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
template <class T> __device__ __forceinline__ T __hip_atomic_load(const T *p, int order, int) {
    T value = *const_cast<const volatile T *>(p);
    if (order != 0) __threadfence_system();
    return value;
}
template <class T, class U> __device__ __forceinline__ void __hip_atomic_store(T *p, U value, int order, int) {
    if (order != 0) __threadfence_system();
    *const_cast<volatile T *>(p) = static_cast<T>(value);
}
#endif
