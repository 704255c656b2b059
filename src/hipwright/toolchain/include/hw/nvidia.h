// The NVIDIA side of HIP's device API, for NVRTC: CUDA's own words under HIP's names and with HIP's meanings.
#pragma once
#include "nvidia_math.h"
#include "types.h"

#define HW_DEV static inline __device__ __attribute__((always_inline, unused))

typedef unsigned long long hw_u64;
typedef __nv_bfloat16 __hip_bfloat16;
typedef __nv_bfloat162 __hip_bfloat162;
typedef __nv_bfloat16_raw __hip_bfloat16_raw;
typedef __nv_bfloat162_raw __hip_bfloat162_raw;
typedef __half _Float16; // arithmetic rounds each operation, as the AMD type does
typedef __nv_bfloat16 __bf16;

// ---------------------------------------------------------------- half and bfloat16: what passes a float2

HW_DEV __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
HW_DEV float2 hw_half22float2(__half2 v) { return float2(__half2float(v.x), __half2float(v.y)); }
HW_DEV __hip_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
HW_DEV float2 hw_bfloat1622float2(__hip_bfloat162 v) { return float2(__bfloat162float(v.x), __bfloat162float(v.y)); }
#define __half22float2 hw_half22float2
#define __bfloat1622float2 hw_bfloat1622float2

// ---------------------------------------------------------------- where a thread is

static constexpr int hw_wave = 32;
#define warpSize hw_wave // a constant expression, as in the other headers here
HW_DEV uint3 hw_thread_index() { return uint3(threadIdx.x, threadIdx.y, threadIdx.z); }
HW_DEV uint3 hw_block_index() { return uint3(blockIdx.x, blockIdx.y, blockIdx.z); }
HW_DEV dim3 hw_block_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
HW_DEV dim3 hw_grid_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
#define threadIdx hw_thread_index()
#define blockIdx hw_block_index()
#define blockDim hw_block_dim()
#define gridDim hw_grid_dim()

HW_DEV unsigned __lane_id() {
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

#define HIP_DYNAMIC_SHARED(HwT, NAME) extern __shared__ HwT NAME[];
HW_DEV long long wall_clock64() { // nanoseconds
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
HW_DEV void abort() { __trap(); }

// ---------------------------------------------------------------- votes and shuffles: no masks, 64-bit ballots

HW_DEV hw_u64 hw_ballot(int predicate) { return __ballot_sync(__activemask(), predicate); }
HW_DEV hw_u64 hw_activemask() { return __activemask(); }
HW_DEV int hw_any(int predicate) { return __any_sync(__activemask(), predicate); }
HW_DEV int hw_all(int predicate) { return __all_sync(__activemask(), predicate); }
#define __ballot hw_ballot
#define __activemask hw_activemask
#define __any hw_any
#define __all hw_all
template <class HwT> HW_DEV hw_u64 __match_any(HwT value) { return __match_any_sync((unsigned)__activemask(), value); }

// The lanes that are here take part; the last argument is a segment of lanes, as in CUDA.
#define HW_SHUFFLES(HwT)                                                                                               \
    HW_DEV HwT __shfl(HwT v, int source, int width = warpSize) {                                                       \
        return __shfl_sync((unsigned)__activemask(), v, source, width);                                                \
    }                                                                                                                  \
    HW_DEV HwT __shfl_up(HwT v, unsigned delta, int width = warpSize) {                                                \
        return __shfl_up_sync((unsigned)__activemask(), v, delta, width);                                              \
    }                                                                                                                  \
    HW_DEV HwT __shfl_down(HwT v, unsigned delta, int width = warpSize) {                                              \
        return __shfl_down_sync((unsigned)__activemask(), v, delta, width);                                            \
    }                                                                                                                  \
    HW_DEV HwT __shfl_xor(HwT v, int mask, int width = warpSize) {                                                     \
        return __shfl_xor_sync((unsigned)__activemask(), v, mask, width);                                              \
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

// ---------------------------------------------------------------- loads

// Our vector types through the read-only path, as CUDA's are; every other type has CUDA's own overload.
template <class HwV> HW_DEV typename HwV::hw_vector __ldg(const HwV *p) {
    if constexpr (sizeof(HwV) == 16 && alignof(HwV) == 16) return hw_bits<HwV>(__ldg((const hw_cuda_uint4 *)p));
    else if constexpr (sizeof(HwV) == 8 && alignof(HwV) == 8) return hw_bits<HwV>(__ldg((const hw_cuda_uint2 *)p));
    else return *p;
}

#include "nvidia_atomic.h"
