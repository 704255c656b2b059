// The AMD side of HIP's device API: indices, barriers, wave operations and atomics on the compiler's builtins.
#pragma once
#include "bf16.h"
#include "bits.h"
#include "half.h"
#include "types.h"

#define HW_DEV static inline __device__ __attribute__((always_inline, unused))

// ---------------------------------------------------------------- where a thread is

#if defined(__GFX9__)
static constexpr __device__ int warpSize = 64;
#else
static constexpr __device__ int warpSize = 32;
#endif

#define HW_COORDINATE(NAME, X, Y, Z)                                                                                   \
    struct hw_##NAME##_t {                                                                                             \
        __declspec(property(get = get_x)) unsigned x;                                                                  \
        __declspec(property(get = get_y)) unsigned y;                                                                  \
        __declspec(property(get = get_z)) unsigned z;                                                                  \
        __device__ __forceinline__ unsigned get_x() const { return X; }                                                \
        __device__ __forceinline__ unsigned get_y() const { return Y; }                                                \
        __device__ __forceinline__ unsigned get_z() const { return Z; }                                                \
        __device__ __forceinline__ operator dim3() const { return dim3(get_x(), get_y(), get_z()); }                   \
        __device__ __forceinline__ operator uint3() const { return uint3(get_x(), get_y(), get_z()); }                 \
    };                                                                                                                 \
    extern const __device__ __attribute__((weak)) hw_##NAME##_t NAME;
// The grid in blocks: hidden arguments 0, 1, 2 of code object v5 and later (LLVM, "User Guide for AMDGPU Backend").
#define HW_BLOCKS(I) (((const __attribute__((address_space(4))) unsigned *)__builtin_amdgcn_implicitarg_ptr())[I])
HW_COORDINATE(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
              __builtin_amdgcn_workitem_id_z())
HW_COORDINATE(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
              __builtin_amdgcn_workgroup_id_z())
HW_COORDINATE(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
              __builtin_amdgcn_workgroup_size_z())
HW_COORDINATE(gridDim, HW_BLOCKS(0), HW_BLOCKS(1), HW_BLOCKS(2))

HW_DEV unsigned __lane_id() {
#if defined(__GFX9__)
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
#else
    return __builtin_amdgcn_mbcnt_lo(~0u, 0u);
#endif
}

// ---------------------------------------------------------------- barriers and fences

HW_DEV void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
HW_DEV void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
HW_DEV void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
HW_DEV void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
HW_DEV void __syncwarp() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"), __builtin_amdgcn_wave_barrier(); }

// ---------------------------------------------------------------- votes

HW_DEV unsigned long long __ballot(int predicate) {
#if defined(__GFX9__)
    return __builtin_amdgcn_ballot_w64(predicate != 0);
#else
    return __builtin_amdgcn_ballot_w32(predicate != 0);
#endif
}
HW_DEV unsigned long long __activemask() { return __ballot(1); }
HW_DEV int __any(int predicate) { return __ballot(predicate) != 0; }
HW_DEV int __all(int predicate) { return __ballot(predicate == 0) == 0; }

// Each wave adds what `value` is in its first lane to a counter in LDS.
HW_DEV int hw_block_sum(int value) {
    __shared__ int total;
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) total = 0;
    __syncthreads();
    if (__lane_id() == (unsigned)__builtin_ctzll(__activemask()))
        __hip_atomic_fetch_add(&total, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __syncthreads();
    int result = total;
    __syncthreads();
    return result;
}
HW_DEV int __syncthreads_count(int predicate) { return hw_block_sum(__popcll(__ballot(predicate))); }
HW_DEV int __syncthreads_or(int predicate) { return hw_block_sum(__any(predicate)) != 0; }
HW_DEV int __syncthreads_and(int predicate) { return hw_block_sum(__any(!predicate)) == 0; }

// ---------------------------------------------------------------- shuffles (no masks, as HIP has them on every ROCm)

template <class HwT> HW_DEV HwT hw_from_lane(HwT value, int lane) {
    if constexpr (sizeof(HwT) == 8) {
        int2 v = hw_bits<int2>(value);
        v.x = __builtin_amdgcn_ds_bpermute(lane << 2, v.x);
        v.y = __builtin_amdgcn_ds_bpermute(lane << 2, v.y);
        return hw_bits<HwT>(v);
    } else if constexpr (sizeof(HwT) == 4) {
        return hw_bits<HwT>(__builtin_amdgcn_ds_bpermute(lane << 2, hw_bits<int>(value)));
    } else {
        short bits = hw_bits<short>(value);
        return hw_bits<HwT>((short)__builtin_amdgcn_ds_bpermute(lane << 2, bits));
    }
}
// A lane outside the segment of `width` lanes reads its own value.
#define HW_SHUFFLES(HwT)                                                                                               \
    HW_DEV HwT __shfl(HwT v, int source, int width = warpSize) {                                                       \
        int self = (int)__lane_id();                                                                                   \
        return hw_from_lane(v, (source & (width - 1)) + (self & ~(width - 1)));                                        \
    }                                                                                                                  \
    HW_DEV HwT __shfl_up(HwT v, unsigned delta, int width = warpSize) {                                                \
        int self = (int)__lane_id(), lane = self - (int)delta;                                                         \
        return hw_from_lane(v, lane < (self & ~(width - 1)) ? self : lane);                                            \
    }                                                                                                                  \
    HW_DEV HwT __shfl_down(HwT v, unsigned delta, int width = warpSize) {                                              \
        int self = (int)__lane_id(), lane = self + (int)delta;                                                         \
        return hw_from_lane(v, (self & (width - 1)) + (int)delta >= width ? self : lane);                              \
    }                                                                                                                  \
    HW_DEV HwT __shfl_xor(HwT v, int mask, int width = warpSize) {                                                     \
        int self = (int)__lane_id(), lane = self ^ mask;                                                               \
        return hw_from_lane(v, lane >= ((self + width) & ~(width - 1)) ? self : lane);                                 \
    }
HW_SHUFFLES(int)
HW_SHUFFLES(unsigned)
HW_SHUFFLES(long)
HW_SHUFFLES(unsigned long)
HW_SHUFFLES(long long)
HW_SHUFFLES(unsigned long long)
HW_SHUFFLES(float)
HW_SHUFFLES(double)
HW_SHUFFLES(__half)
HW_SHUFFLES(__half2)
HW_SHUFFLES(__hip_bfloat16)
HW_SHUFFLES(__hip_bfloat162)
#undef HW_SHUFFLES

// ---------------------------------------------------------------- atomics: relaxed, device scope, as HIP's

#define HW_ATOMIC(NAME, BUILTIN, HwT)                                                                                  \
    HW_DEV HwT NAME(HwT *p, HwT v) { return BUILTIN(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }               \
    HW_DEV HwT NAME##_block(HwT *p, HwT v) { return BUILTIN(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }   \
    HW_DEV HwT NAME##_system(HwT *p, HwT v) { return BUILTIN(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM); }
#define HW_ATOMICS_INT(HwT)                                                                                            \
    HW_ATOMIC(atomicAdd, __hip_atomic_fetch_add, HwT)                                                                  \
    HW_ATOMIC(atomicMin, __hip_atomic_fetch_min, HwT)                                                                  \
    HW_ATOMIC(atomicMax, __hip_atomic_fetch_max, HwT)                                                                  \
    HW_ATOMIC(atomicExch, __hip_atomic_exchange, HwT)                                                                  \
    HW_ATOMIC(atomicAnd, __hip_atomic_fetch_and, HwT)                                                                  \
    HW_ATOMIC(atomicOr, __hip_atomic_fetch_or, HwT)                                                                    \
    HW_ATOMIC(atomicXor, __hip_atomic_fetch_xor, HwT)                                                                  \
    HW_DEV HwT atomicSub(HwT *p, HwT v) { return atomicAdd(p, (HwT)(0 - v)); }                                         \
    HW_DEV HwT atomicCAS(HwT *p, HwT expected, HwT desired) {                                                          \
        __hip_atomic_compare_exchange_strong(p, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,                \
                                             __HIP_MEMORY_SCOPE_AGENT);                                                \
        return expected;                                                                                               \
    }
HW_ATOMICS_INT(int)
HW_ATOMICS_INT(unsigned)
HW_ATOMICS_INT(unsigned long)
HW_ATOMICS_INT(unsigned long long)
HW_ATOMICS_INT(long long)
HW_ATOMIC(atomicAdd, __hip_atomic_fetch_add, float)
HW_ATOMIC(atomicAdd, __hip_atomic_fetch_add, double)
HW_ATOMIC(atomicExch, __hip_atomic_exchange, float)
HW_ATOMIC(atomicExch, __hip_atomic_exchange, double)
HW_ATOMIC(atomicMin, __hip_atomic_fetch_min, float)
HW_ATOMIC(atomicMax, __hip_atomic_fetch_max, float)
HW_ATOMIC(atomicMin, __hip_atomic_fetch_min, double)
HW_ATOMIC(atomicMax, __hip_atomic_fetch_max, double)
HW_DEV float atomicSub(float *p, float v) { return atomicAdd(p, -v); }
HW_DEV double atomicSub(double *p, double v) { return atomicAdd(p, -v); }
HW_DEV unsigned atomicInc(unsigned *p, unsigned limit) {
    return __builtin_amdgcn_atomic_inc32(p, limit, __ATOMIC_RELAXED, "agent");
}
HW_DEV unsigned atomicDec(unsigned *p, unsigned limit) {
    return __builtin_amdgcn_atomic_dec32(p, limit, __ATOMIC_RELAXED, "agent");
}
// 16-bit pairs: a compare-and-swap loop on the word that holds both.
template <class HwT> HW_DEV HwT hw_atomic_pair_add(HwT *p, HwT v) {
    unsigned *word = (unsigned *)p, old = *word, seen;
    do {
        seen = old;
        old = atomicCAS(word, seen, hw_bits<unsigned>(hw_bits<HwT>(seen) + v));
    } while (old != seen);
    return hw_bits<HwT>(old);
}
HW_DEV __half2 atomicAdd(__half2 *p, __half2 v) { return hw_atomic_pair_add(p, v); }
HW_DEV __hip_bfloat162 atomicAdd(__hip_bfloat162 *p, __hip_bfloat162 v) { return hw_atomic_pair_add(p, v); }
// The hardware's float add: right on ordinary (coarse-grained) device memory, without a compare-and-swap loop.
#define HW_UNSAFE_ADD(HwT)                                                                                             \
    HW_DEV HwT unsafeAtomicAdd(HwT *p, HwT v) {                                                                        \
        [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]] {                            \
            return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                           \
        }                                                                                                              \
    }
HW_UNSAFE_ADD(float)
HW_UNSAFE_ADD(double)
#undef HW_UNSAFE_ADD

// ---------------------------------------------------------------- the rest

#define HIP_DYNAMIC_SHARED(HwT, NAME) extern __shared__ HwT NAME[];
HW_DEV long long clock64() { return (long long)__builtin_readcyclecounter(); }
HW_DEV long long wall_clock64() { return (long long)__builtin_readsteadycounter(); }
HW_DEV void __trap() { __builtin_trap(); }
HW_DEV void abort() { __builtin_trap(); }
