// The type __hip_bfloat16 and its functions, with every compiler: AMD's headers have none (hipRTC), fewer, or others.
#include <hip/hip_runtime.h>
#ifdef __CUDACC__
#  include <hip/hip_bf16.h>
#elif !defined(HIPWRIGHT_BFLOAT16_TYPE)
#define HIPWRIGHT_BFLOAT16_TYPE 1
// Storage is 16 bits; arithmetic is done in float and rounded to nearest even.

#ifndef HIPWRIGHT_HEADERS  // AMD's headers came first: what they may have already gets other names
#define __hip_bfloat16 hipwright_bfloat16
#define __hip_bfloat16_raw hipwright_bfloat16_raw
#define __hip_bfloat162 hipwright_bfloat162
#define __hip_bfloat162_raw hipwright_bfloat162_raw
#define __nv_bfloat16 hipwright_nv_bfloat16
#define __nv_bfloat162 hipwright_nv_bfloat162
#define __float2bfloat16 hipwright_float2bfloat16
#define __float2bfloat16_rn hipwright_float2bfloat16_rn
#define __double2bfloat16 hipwright_double2bfloat16
#define __int2bfloat16_rn hipwright_int2bfloat16_rn
#define __float22bfloat162_rn hipwright_float22bfloat162_rn
#define __float2bfloat162_rn hipwright_float2bfloat162_rn
#define __floats2bfloat162_rn hipwright_floats2bfloat162_rn
#define __short_as_bfloat16 hipwright_short_as_bfloat16
#define __ushort_as_bfloat16 hipwright_ushort_as_bfloat16
#define HW_FN static inline __device__ __attribute__((always_inline, unused))
#define HW_CFN static constexpr inline __device__ __attribute__((always_inline, unused))
#define HW_METHOD inline __device__ __attribute__((always_inline))
template <class HwTo, class HwFrom> HW_CFN HwTo hw_bits(HwFrom value) { return __builtin_bit_cast(HwTo, value); }
#endif

#if defined(__AMDGCN__) && __clang_major__ >= 19
#define HIPWRIGHT_NATIVE_BFLOAT16 1
#else
#define HIPWRIGHT_NATIVE_BFLOAT16 0
#endif

HW_FN unsigned short hw_to_bf16(float f) {
#if HIPWRIGHT_NATIVE_BFLOAT16
    return hw_bits<unsigned short>((__bf16)f); // one instruction on gfx950
#else
    unsigned u = hw_bits<unsigned>(f);
    if (f != f) return (unsigned short)((u >> 16) | 0x40);
    return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
}
HW_CFN float hw_from_bf16(unsigned short b) { return hw_bits<float>((unsigned)b << 16); }

struct __hip_bfloat16_raw {
    unsigned short x;
};
struct alignas(2) __hip_bfloat16 {
    unsigned short __x;
    __hip_bfloat16() = default;
    constexpr HW_METHOD __hip_bfloat16(__hip_bfloat16_raw r) : __x(r.x) {}
    HW_METHOD __hip_bfloat16(float v) : __x(hw_to_bf16(v)) {}
    HW_METHOD __hip_bfloat16(double v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(int v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(unsigned v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(long v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(unsigned long v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(long long v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD __hip_bfloat16(unsigned long long v) : __x(hw_to_bf16((float)v)) {}
    HW_METHOD operator float() const { return hw_from_bf16(__x); }
    HW_METHOD operator __hip_bfloat16_raw() const { return {__x}; }
    HW_METHOD explicit operator double() const { return hw_from_bf16(__x); }
    HW_METHOD explicit operator int() const { return (int)hw_from_bf16(__x); }
    HW_METHOD explicit operator unsigned() const { return (unsigned)hw_from_bf16(__x); }
    HW_METHOD explicit operator long long() const { return (long long)hw_from_bf16(__x); }
    HW_METHOD explicit operator bool() const { return (__x & 0x7fff) != 0; }
};
typedef __hip_bfloat16 __nv_bfloat16;
#define HW_BF16_OP(OP)                                                                                                 \
    HW_FN __hip_bfloat16 operator OP(__hip_bfloat16 a, __hip_bfloat16 b) { return (float)a OP(float) b; }              \
    HW_FN __hip_bfloat16 &operator OP##=(__hip_bfloat16 &a, __hip_bfloat16 b) { return a = a OP b; }
HW_BF16_OP(+)
HW_BF16_OP(-)
HW_BF16_OP(*)
HW_BF16_OP(/)
#undef HW_BF16_OP
#define HW_BF16_CMP(OP)                                                                                                \
    HW_FN bool operator OP(__hip_bfloat16 a, __hip_bfloat16 b) { return (float)a OP(float) b; }
HW_BF16_CMP(==)
HW_BF16_CMP(!=)
HW_BF16_CMP(<)
HW_BF16_CMP(>)
HW_BF16_CMP(<=)
HW_BF16_CMP(>=)
#undef HW_BF16_CMP
HW_FN __hip_bfloat16 operator-(__hip_bfloat16 a) { return __hip_bfloat16_raw{(unsigned short)(a.__x ^ 0x8000)}; }
HW_FN __hip_bfloat16 operator+(__hip_bfloat16 a) { return a; }

struct __hip_bfloat162_raw {
    unsigned short x, y;
};
struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
    __hip_bfloat162() = default;
    HW_METHOD __hip_bfloat162(__hip_bfloat16 x, __hip_bfloat16 y) : x(x), y(y) {}
};
typedef __hip_bfloat162 __nv_bfloat162;
#define HW_BF162_OP(OP)                                                                                                \
    HW_FN __hip_bfloat162 operator OP(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x OP b.x, a.y OP b.y}; }       \
    HW_FN __hip_bfloat162 &operator OP##=(__hip_bfloat162 &a, __hip_bfloat162 b) { return a = a OP b; }
HW_BF162_OP(+)
HW_BF162_OP(-)
HW_BF162_OP(*)
HW_BF162_OP(/)
#undef HW_BF162_OP

HW_FN __hip_bfloat16 __float2bfloat16(float v) { return v; }
HW_FN __hip_bfloat16 __float2bfloat16_rn(float v) { return v; }
HW_FN __hip_bfloat16 __double2bfloat16(double v) { return v; }
HW_FN float __bfloat162float(__hip_bfloat16 v) { return v; }
HW_FN __hip_bfloat16 __int2bfloat16_rn(int v) { return v; }
HW_FN int __bfloat162int_rz(__hip_bfloat16 v) { return (int)(float)v; }
HW_FN __hip_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
HW_FN float2 __bfloat1622float2(__hip_bfloat162 v) { return {v.x, v.y}; }
HW_FN __hip_bfloat162 __float2bfloat162_rn(float v) { return {v, v}; }
HW_FN __hip_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
HW_FN __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 v) { return {v, v}; }
HW_FN __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return {a, b}; }
HW_FN __hip_bfloat162 make_bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return {a, b}; }
HW_FN __hip_bfloat16 __low2bfloat16(__hip_bfloat162 v) { return v.x; }
HW_FN __hip_bfloat16 __high2bfloat16(__hip_bfloat162 v) { return v.y; }
HW_FN float __low2float(__hip_bfloat162 v) { return v.x; }
HW_FN float __high2float(__hip_bfloat162 v) { return v.y; }
HW_FN unsigned short __bfloat16_as_ushort(__hip_bfloat16 v) { return v.__x; }
HW_FN short __bfloat16_as_short(__hip_bfloat16 v) { return (short)v.__x; }
HW_FN __hip_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __hip_bfloat16_raw{v}; }
HW_FN __hip_bfloat16 __short_as_bfloat16(short v) { return __hip_bfloat16_raw{(unsigned short)v}; }

HW_FN __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b) { return a + b; }
HW_FN __hip_bfloat16 __hsub(__hip_bfloat16 a, __hip_bfloat16 b) { return a - b; }
HW_FN __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b) { return a * b; }
HW_FN __hip_bfloat16 __hdiv(__hip_bfloat16 a, __hip_bfloat16 b) { return a / b; }
HW_FN __hip_bfloat16 __hneg(__hip_bfloat16 a) { return -a; }
HW_FN __hip_bfloat16 __habs(__hip_bfloat16 a) { return __hip_bfloat16_raw{(unsigned short)(a.__x & 0x7fff)}; }
HW_FN __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __builtin_fmaf((float)a, (float)b, (float)c);
}
HW_FN __hip_bfloat16 __hmax(__hip_bfloat16 a, __hip_bfloat16 b) { return __builtin_fmaxf((float)a, (float)b); }
HW_FN __hip_bfloat16 __hmin(__hip_bfloat16 a, __hip_bfloat16 b) { return __builtin_fminf((float)a, (float)b); }
HW_FN bool __heq(__hip_bfloat16 a, __hip_bfloat16 b) { return a == b; }
HW_FN bool __hne(__hip_bfloat16 a, __hip_bfloat16 b) { return a != b; }
HW_FN bool __hlt(__hip_bfloat16 a, __hip_bfloat16 b) { return a < b; }
HW_FN bool __hle(__hip_bfloat16 a, __hip_bfloat16 b) { return a <= b; }
HW_FN bool __hgt(__hip_bfloat16 a, __hip_bfloat16 b) { return a > b; }
HW_FN bool __hge(__hip_bfloat16 a, __hip_bfloat16 b) { return a >= b; }
HW_FN bool __hisnan(__hip_bfloat16 a) { return (a.__x & 0x7fff) > 0x7f80; }
HW_FN int __hisinf(__hip_bfloat16 a) { return (a.__x & 0x7fff) == 0x7f80; }
HW_FN __hip_bfloat162 __hadd2(__hip_bfloat162 a, __hip_bfloat162 b) { return a + b; }
HW_FN __hip_bfloat162 __hsub2(__hip_bfloat162 a, __hip_bfloat162 b) { return a - b; }
HW_FN __hip_bfloat162 __hmul2(__hip_bfloat162 a, __hip_bfloat162 b) { return a * b; }
HW_FN __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
HW_FN __hip_bfloat162 __hmax2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
HW_FN __hip_bfloat162 __hmin2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

#define HW_BF16_MATH(NAME, HwF)                                                                                        \
    HW_FN __hip_bfloat16 h##NAME(__hip_bfloat16 v) { return HwF((float)v); }                                           \
    HW_FN __hip_bfloat162 h2##NAME(__hip_bfloat162 v) { return {HwF((float)v.x), HwF((float)v.y)}; }
HW_BF16_MATH(exp, expf)
HW_BF16_MATH(exp2, exp2f)
HW_BF16_MATH(log, logf)
HW_BF16_MATH(log2, log2f)
HW_BF16_MATH(log10, log10f)
HW_BF16_MATH(sqrt, sqrtf)
HW_BF16_MATH(rsqrt, rsqrtf)
HW_BF16_MATH(sin, sinf)
HW_BF16_MATH(cos, cosf)
HW_BF16_MATH(ceil, ceilf)
HW_BF16_MATH(floor, floorf)
HW_BF16_MATH(trunc, truncf)
HW_BF16_MATH(rint, rintf)
#undef HW_BF16_MATH
HW_FN __hip_bfloat16 hrcp(__hip_bfloat16 v) { return 1.0f / (float)v; }
#endif
