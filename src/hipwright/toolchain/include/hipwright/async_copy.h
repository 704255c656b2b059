// Asynchronous copies of 16 bytes from global memory to LDS.
#pragma once
#include <hip/hip_runtime.h>

// Copies 16 bytes from global memory to LDS, asynchronously where the device can (PTX cp.async). The copies since the
// last cp_async_commit are one group; cp_async_wait_group returns when at most PENDING groups are under way.
template <typename T>
__device__ __forceinline__ void cp_async_16(T* destination, const T* source) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(destination)), "l"(__cvta_generic_to_global(source))
                 : "memory");
#else
    __builtin_memcpy(destination, source, 16);
#endif
}

// The same where `valid`, else 16 bytes of zeros; then the source is not read.
template <typename T>
__device__ __forceinline__ void cp_async_16_or_zero(T* destination, const T* source, bool valid) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(destination)), "l"(__cvta_generic_to_global(source)),
                   "r"(valid ? 16 : 0)
                 : "memory");
#else
    if (valid)
        __builtin_memcpy(destination, source, 16);
    else
        __builtin_memset(destination, 0, 16);
#endif
}

// gfx950 loads 16 bytes a lane straight to LDS, without registers.
#if defined(__gfx950__) && __has_builtin(__builtin_amdgcn_global_load_lds)
#define DIRECT_COPIES 1
#else
#define DIRECT_COPIES 0
#endif

// Copies 16 bytes to LDS where `valid`; else nothing is read or written. The destinations of a wave's lanes lie one behind
// the other, the first lane's first; the bytes are there after wait_for_direct_copies.
template <typename T>
__device__ __forceinline__ void direct_copy_16(T* destination, const T* source, bool valid) {
    if (!valid) return;
#if DIRECT_COPIES
    using Global = __attribute__((address_space(1))) void*;
    using Lds = __attribute__((address_space(3))) void*;
    unsigned char* const first = reinterpret_cast<unsigned char*>(destination) - threadIdx.x % 64 * 16;  // lane 0's
    __builtin_amdgcn_global_load_lds((Global)const_cast<T*>(source), (Lds)first, 16, 0, 0);
#else
    __builtin_memcpy(destination, source, 16);
#endif
}

// Before the barrier behind which what was copied is read.
__device__ __forceinline__ void wait_for_direct_copies() {
#if DIRECT_COPIES
    __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
#endif
}

__device__ __forceinline__ void cp_async_commit() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
#endif
}
