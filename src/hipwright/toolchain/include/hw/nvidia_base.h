// NVRTC: what clang predefines and NVRTC does not, so that the other headers here read the same under both.
// toolchain/nvidia/nvrtc.py includes this file before anything else.
#pragma once
#define HW_NVIDIA 1

#define __HIP__ 1
#define __HIPCC__ 1
#define __HIP_DEVICE_COMPILE__ 1
#define __HIP_PLATFORM_NVIDIA__ 1

#define __INT8_TYPE__ signed char
#define __INT16_TYPE__ short
#define __INT32_TYPE__ int
#define __INT64_TYPE__ long
#define __UINT8_TYPE__ unsigned char
#define __UINT16_TYPE__ unsigned short
#define __UINT32_TYPE__ unsigned
#define __UINT64_TYPE__ unsigned long
#define __INTPTR_TYPE__ long
#define __UINTPTR_TYPE__ unsigned long
#define __INTMAX_TYPE__ long
#define __UINTMAX_TYPE__ unsigned long
#define __SIZE_TYPE__ unsigned long
#define __PTRDIFF_TYPE__ long
#define __SIZE_MAX__ 18446744073709551615UL
#define __INT_MAX__ 2147483647
#define __LONG_MAX__ 9223372036854775807L
#define __LONG_LONG_MAX__ 9223372036854775807LL
#define __FLT_MAX__ 3.40282346638528859812e+38F
#define __FLT_MIN__ 1.17549435082228750797e-38F
#define __FLT_EPSILON__ 1.19209289550781250000e-7F
#define __FLT_DENORM_MIN__ 1.40129846432481707092e-45F
#define __FLT_DIG__ 6
#define __FLT_MANT_DIG__ 24
#define __FLT_MAX_EXP__ 128
#define __FLT_MIN_EXP__ (-125)
#define __DBL_MAX__ 1.79769313486231570815e+308
#define __DBL_MIN__ 2.22507385850720138309e-308
#define __DBL_EPSILON__ 2.22044604925031308085e-16
#define __DBL_DENORM_MIN__ 4.94065645841246544177e-324
#define __DBL_DIG__ 15
#define __DBL_MANT_DIG__ 53
#define __DBL_MAX_EXP__ 1024
#define __DBL_MIN_EXP__ (-1021)

#define __ATOMIC_RELAXED 0
#define __ATOMIC_CONSUME 1
#define __ATOMIC_ACQUIRE 2
#define __ATOMIC_RELEASE 3
#define __ATOMIC_ACQ_REL 4
#define __ATOMIC_SEQ_CST 5

#define __builtin_huge_valf() __builtin_bit_cast(float, 0x7f800000)
#define __builtin_huge_val() __builtin_bit_cast(double, 0x7ff0000000000000LL)
#define __builtin_inff() __builtin_huge_valf()
#define __builtin_inf() __builtin_huge_val()
#define __builtin_nanf(text) __builtin_bit_cast(float, 0x7fc00000)
#define __builtin_nan(text) __builtin_bit_cast(double, 0x7ff8000000000000LL)
#define __builtin_memcpy memcpy
#define __builtin_memset memset
#define __builtin_trap() __trap()
#define __builtin_offsetof(type, member) ((unsigned long)__INTADDR__(&(((type *)0)->member)))

// clang's builtins that kernels use by themselves
#define __builtin_memcpy memcpy
#define __builtin_memset memset
#define __builtin_popcount __popc
#define __builtin_popcountll __popcll
#define __builtin_clz(x) __clz((int)(x))
#define __builtin_clzll(x) __clzll((long long)(x))
#define __builtin_ctz(x) (__ffs((int)(x)) - 1)
#define __builtin_ctzll(x) (__ffsll((long long)(x)) - 1)
#define __builtin_bitreverse32 __brev
#define __builtin_bitreverse64 __brevll
#define __builtin_isnan(x) isnan(x)
#define __builtin_isinf(x) isinf(x)
#define __builtin_isfinite(x) isfinite(x)
#define __builtin_nontemporal_load(p) hw_stream_load(p)
#define __builtin_nontemporal_store(value, p) hw_stream_store(value, p)
// What is read through the pointer is the last to leave the L2 cache (the property's words are libcu++'s for evict_last).
extern "C" __device__ void* __nv_associate_access_property(const void*, unsigned long long);
template <typename T> __device__ __forceinline__ const T* hw_kept(const T* p) {
    return static_cast<const T*>(__nv_associate_access_property(p, 0x14F0000000000000ull));
}
#define hw_kept hw_kept
#define __builtin_fma fma
#define __builtin_fmaf fmaf
#define __builtin_sqrt sqrt
#define __builtin_sqrtf sqrtf
#define __builtin_fabs fabs
#define __builtin_fabsf fabsf
#define __builtin_exp exp
#define __builtin_expf expf
#define __builtin_exp2 exp2
#define __builtin_exp2f exp2f
#define __builtin_log log
#define __builtin_logf logf
#define __builtin_log2 log2
#define __builtin_log2f log2f
#define __builtin_log10 log10
#define __builtin_log10f log10f
#define __builtin_sin sin
#define __builtin_sinf sinf
#define __builtin_cos cos
#define __builtin_cosf cosf
#define __builtin_tanh tanh
#define __builtin_tanhf tanhf
#define __builtin_rint rint
#define __builtin_rintf rintf
#define __builtin_floor floor
#define __builtin_floorf floorf
#define __builtin_ceil ceil
#define __builtin_ceilf ceilf
#define __builtin_trunc trunc
#define __builtin_truncf truncf
#define __builtin_round round
#define __builtin_roundf roundf
#define __builtin_nearbyint nearbyint
#define __builtin_nearbyintf nearbyintf
#define __builtin_fmax fmax
#define __builtin_fmaxf fmaxf
#define __builtin_fmin fmin
#define __builtin_fminf fminf
#define __builtin_copysign copysign
#define __builtin_copysignf copysignf
#define __builtin_pow pow
#define __builtin_powf powf
#define __builtin_fmod fmod
#define __builtin_fmodf fmodf

#include "nvidia_traits.h"

// Half and bfloat16 are CUDA's; their bodies are compiled into NVRTC with CUDA's own vector types, so they come first.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

// ---------------------------------------------------------------- HIP's min, max and vector types beside CUDA's own

// CUDA's min and max are no constant expressions. (A kernel of that name is found again by device/cuda.py.)
#define min hw_min
#define max hw_max

// CUDA's float4 has no operators and no constructors and cannot get them: HIP's is another type under the same name.
typedef uint2 hw_cuda_uint2;
typedef uint4 hw_cuda_uint4;

// What is read or written once is the first to leave the caches: ld.cs and st.cs, where one access holds the type.
template <unsigned long SIZE> struct hw_word { typedef void type; };
template <> struct hw_word<1> { typedef unsigned char type; };
template <> struct hw_word<2> { typedef unsigned short type; };
template <> struct hw_word<4> { typedef unsigned type; };
template <> struct hw_word<8> { typedef hw_cuda_uint2 type; };
template <> struct hw_word<16> { typedef hw_cuda_uint4 type; };
template <typename T> constexpr bool hw_one_access() {
    return sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0 && alignof(T) == sizeof(T);
}
template <typename T> __device__ __forceinline__ T hw_stream_load(const T* p) {
    if constexpr (hw_one_access<T>()) {
        typedef typename hw_word<sizeof(T)>::type Word;
        const Word word = __ldcs(reinterpret_cast<const Word*>(p));
        T value;
        memcpy(&value, &word, sizeof(T));
        return value;
    } else {
        return *p;
    }
}
template <typename V, typename T> __device__ __forceinline__ void hw_stream_store(V given, T* p) {
    const T value = given;
    if constexpr (hw_one_access<T>()) {
        typename hw_word<sizeof(T)>::type word;
        memcpy(&word, &value, sizeof(T));
        __stcs(reinterpret_cast<typename hw_word<sizeof(T)>::type*>(p), word);
    } else {
        *p = value;
    }
}
#define char1 hw_char1
#define make_char1 hw_make_char1
#define char2 hw_char2
#define make_char2 hw_make_char2
#define char3 hw_char3
#define make_char3 hw_make_char3
#define char4 hw_char4
#define make_char4 hw_make_char4
#define uchar1 hw_uchar1
#define make_uchar1 hw_make_uchar1
#define uchar2 hw_uchar2
#define make_uchar2 hw_make_uchar2
#define uchar3 hw_uchar3
#define make_uchar3 hw_make_uchar3
#define uchar4 hw_uchar4
#define make_uchar4 hw_make_uchar4
#define short1 hw_short1
#define make_short1 hw_make_short1
#define short2 hw_short2
#define make_short2 hw_make_short2
#define short3 hw_short3
#define make_short3 hw_make_short3
#define short4 hw_short4
#define make_short4 hw_make_short4
#define ushort1 hw_ushort1
#define make_ushort1 hw_make_ushort1
#define ushort2 hw_ushort2
#define make_ushort2 hw_make_ushort2
#define ushort3 hw_ushort3
#define make_ushort3 hw_make_ushort3
#define ushort4 hw_ushort4
#define make_ushort4 hw_make_ushort4
#define int1 hw_int1
#define make_int1 hw_make_int1
#define int2 hw_int2
#define make_int2 hw_make_int2
#define int3 hw_int3
#define make_int3 hw_make_int3
#define int4 hw_int4
#define make_int4 hw_make_int4
#define uint1 hw_uint1
#define make_uint1 hw_make_uint1
#define uint2 hw_uint2
#define make_uint2 hw_make_uint2
#define uint3 hw_uint3
#define make_uint3 hw_make_uint3
#define uint4 hw_uint4
#define make_uint4 hw_make_uint4
#define long1 hw_long1
#define make_long1 hw_make_long1
#define long2 hw_long2
#define make_long2 hw_make_long2
#define long3 hw_long3
#define make_long3 hw_make_long3
#define long4 hw_long4
#define make_long4 hw_make_long4
#define ulong1 hw_ulong1
#define make_ulong1 hw_make_ulong1
#define ulong2 hw_ulong2
#define make_ulong2 hw_make_ulong2
#define ulong3 hw_ulong3
#define make_ulong3 hw_make_ulong3
#define ulong4 hw_ulong4
#define make_ulong4 hw_make_ulong4
#define longlong1 hw_longlong1
#define make_longlong1 hw_make_longlong1
#define longlong2 hw_longlong2
#define make_longlong2 hw_make_longlong2
#define longlong3 hw_longlong3
#define make_longlong3 hw_make_longlong3
#define longlong4 hw_longlong4
#define make_longlong4 hw_make_longlong4
#define ulonglong1 hw_ulonglong1
#define make_ulonglong1 hw_make_ulonglong1
#define ulonglong2 hw_ulonglong2
#define make_ulonglong2 hw_make_ulonglong2
#define ulonglong3 hw_ulonglong3
#define make_ulonglong3 hw_make_ulonglong3
#define ulonglong4 hw_ulonglong4
#define make_ulonglong4 hw_make_ulonglong4
#define float1 hw_float1
#define make_float1 hw_make_float1
#define float2 hw_float2
#define make_float2 hw_make_float2
#define float3 hw_float3
#define make_float3 hw_make_float3
#define float4 hw_float4
#define make_float4 hw_make_float4
#define double1 hw_double1
#define make_double1 hw_make_double1
#define double2 hw_double2
#define make_double2 hw_make_double2
#define double3 hw_double3
#define make_double3 hw_make_double3
#define double4 hw_double4
#define make_double4 hw_make_double4
typedef dim3 hw_cuda_dim3;
#define dim3 hw_dim3
