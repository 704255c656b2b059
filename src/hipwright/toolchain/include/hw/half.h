// __half (half) and __half2 (half2) on _Float16, with HIP's conversions, operators and intrinsics.
#pragma once
#include "math.h"
#include "types.h"

// float to half; contracted with a conversion from double before it, it would be one for which no CPU has an instruction.
HW_CFN _Float16 hw_to_half(float v) {
#pragma clang fp contract(off)
    return (_Float16)v;
}

// double to half with one rounding: to odd in float first (Boldo and Melquiond 2008), as no CPU does it in hardware.
HW_CFN _Float16 hw_to_half(double v) {
    float f = (float)v;
    if ((double)f != v && v == v) {
        unsigned u = hw_bits<unsigned>(f);
        bool above = v > 0 ? (double)f > v : (double)f < v;
        f = hw_bits<float>((above ? u - 1 : u) | 1);
    }
    return hw_to_half(f);
}

struct __half_raw {
    unsigned short x;
};
struct __attribute__((aligned(2))) __half {
    _Float16 data;
    __half() = default;
    constexpr HW_METHOD __half(_Float16 v) : data(v) {}
    constexpr HW_METHOD __half(__half_raw r) : data(hw_bits<_Float16>(r.x)) {}
    constexpr HW_METHOD __half(float v) : data(hw_to_half(v)) {}
    constexpr HW_METHOD __half(double v) : data(hw_to_half(v)) {}
    constexpr HW_METHOD __half(int v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD __half(unsigned v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD __half(long v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD __half(unsigned long v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD __half(long long v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD __half(unsigned long long v) : data((_Float16)(float)v) {}
    constexpr HW_METHOD operator float() const { return (float)data; }
    constexpr HW_METHOD operator _Float16() const { return data; }
    constexpr HW_METHOD operator __half_raw() const { return {hw_bits<unsigned short>(data)}; }
    constexpr HW_METHOD explicit operator double() const { return (double)(float)data; }
    constexpr HW_METHOD explicit operator int() const { return (int)(float)data; }
    constexpr HW_METHOD explicit operator unsigned() const { return (unsigned)(float)data; }
    constexpr HW_METHOD explicit operator long long() const { return (long long)(float)data; }
    constexpr HW_METHOD explicit operator bool() const { return data != (_Float16)0; }
};
typedef __half half;

#define HW_HALF_OP(OP)                                                                                                 \
    HW_CFN __half operator OP(__half a, __half b) { return __half((_Float16)(a.data OP b.data)); }                     \
    HW_FN __half &operator OP##=(__half &a, __half b) { return a = a OP b; }
HW_HALF_OP(+)
HW_HALF_OP(-)
HW_HALF_OP(*)
HW_HALF_OP(/)
#undef HW_HALF_OP
#define HW_HALF_CMP(OP)                                                                                                \
    HW_CFN bool operator OP(__half a, __half b) { return a.data OP b.data; }
HW_HALF_CMP(==)
HW_HALF_CMP(!=)
HW_HALF_CMP(<)
HW_HALF_CMP(>)
HW_HALF_CMP(<=)
HW_HALF_CMP(>=)
#undef HW_HALF_CMP
HW_CFN __half operator-(__half a) { return __half((_Float16)-a.data); }
HW_CFN __half operator+(__half a) { return a; }

typedef _Float16 hw_half_pair __attribute__((ext_vector_type(2)));
struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    constexpr HW_METHOD __half2(__half x, __half y) : x(x), y(y) {}
    HW_METHOD __half2(hw_half_pair v) : x(__half((_Float16)v.x)), y(__half((_Float16)v.y)) {}
    HW_METHOD operator hw_half_pair() const { return hw_half_pair{x.data, y.data}; }
};
typedef __half2 half2;

// On the pair type, so that the packed instructions are used.
#define HW_HALF2_OP(OP)                                                                                                \
    HW_FN __half2 operator OP(__half2 a, __half2 b) { return __half2((hw_half_pair)a OP(hw_half_pair) b); }            \
    HW_FN __half2 &operator OP##=(__half2 &a, __half2 b) { return a = a OP b; }
HW_HALF2_OP(+)
HW_HALF2_OP(-)
HW_HALF2_OP(*)
HW_HALF2_OP(/)
#undef HW_HALF2_OP
HW_FN __half2 operator-(__half2 a) { return __half2(-(hw_half_pair)a); }
HW_FN bool operator==(__half2 a, __half2 b) { return a.x == b.x && a.y == b.y; }
HW_FN bool operator!=(__half2 a, __half2 b) { return !(a == b); }

HW_CFN __half __float2half(float v) { return v; }
HW_CFN __half __float2half_rn(float v) { return v; }
HW_FN __half __float2half_rz(float v) { // toward zero: the nearest, stepped back if it overshot
    __half h = v;
    if (__builtin_isinf(v) || v != v) return h;
    unsigned short bits = hw_bits<unsigned short>(h.data);
    if (__builtin_fabsf((float)h) > __builtin_fabsf(v)) bits -= 1;
    return __half_raw{bits};
}
HW_CFN __half __double2half(double v) { return v; }
HW_CFN float __half2float(__half v) { return v; }
HW_CFN __half __int2half_rn(int v) { return v; }
HW_CFN __half __uint2half_rn(unsigned v) { return v; }
HW_CFN __half __short2half_rn(short v) { return (int)v; }
HW_CFN __half __ushort2half_rn(unsigned short v) { return (int)v; }
HW_CFN __half __ll2half_rn(long long v) { return v; }
HW_FN int __half2int_rn(__half v) { return (int)__builtin_rintf((float)v); }
HW_CFN int __half2int_rz(__half v) { return (int)(float)v; }
HW_FN int __half2int_rd(__half v) { return (int)__builtin_floorf((float)v); }
HW_FN int __half2int_ru(__half v) { return (int)__builtin_ceilf((float)v); }
HW_CFN unsigned __half2uint_rz(__half v) { return (unsigned)(float)v; }
HW_CFN unsigned short __half_as_ushort(__half v) { return hw_bits<unsigned short>(v.data); }
HW_CFN short __half_as_short(__half v) { return hw_bits<short>(v.data); }
HW_CFN __half __ushort_as_half(unsigned short v) { return __half_raw{v}; }
HW_CFN __half __short_as_half(short v) { return __half_raw{(unsigned short)v}; }

HW_FN __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
HW_FN __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
HW_FN __half2 __float2half2_rn(float v) { return {v, v}; }
HW_FN float2 __half22float2(__half2 v) { return {v.x, v.y}; }
HW_FN __half2 __half2half2(__half v) { return {v, v}; }
HW_FN __half2 __halves2half2(__half a, __half b) { return {a, b}; }
HW_FN __half2 make_half2(__half a, __half b) { return {a, b}; }
HW_FN __half __low2half(__half2 v) { return v.x; }
HW_FN __half __high2half(__half2 v) { return v.y; }
HW_FN float __low2float(__half2 v) { return v.x; }
HW_FN float __high2float(__half2 v) { return v.y; }
HW_FN __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
HW_FN __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
HW_FN __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
HW_FN __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
HW_FN __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }

HW_FN _Float16 hw_fma16(_Float16 a, _Float16 b, _Float16 c) {
#if HW_AMD
    return __builtin_fmaf16(a, b, c);
#else
    return hw_to_half((double)(float)a * (double)(float)b + (double)(float)c); // the product is exact
#endif
}
HW_FN __half __hadd(__half a, __half b) { return a + b; }
HW_FN __half __hsub(__half a, __half b) { return a - b; }
HW_FN __half __hmul(__half a, __half b) { return a * b; }
HW_FN __half __hdiv(__half a, __half b) { return a / b; }
HW_FN __half __hneg(__half a) { return -a; }
HW_FN __half __habs(__half a) { return __half_raw{(unsigned short)(__half_as_ushort(a) & 0x7fff)}; }
HW_FN __half __hfma(__half a, __half b, __half c) { return __half(hw_fma16(a.data, b.data, c.data)); }
HW_FN __half __hmax(__half a, __half b) { return __builtin_fmaxf((float)a, (float)b); }
HW_FN __half __hmin(__half a, __half b) { return __builtin_fminf((float)a, (float)b); }
HW_FN __half __hadd_sat(__half a, __half b) { return __builtin_fminf(__builtin_fmaxf((float)(a + b), 0.0f), 1.0f); }
HW_FN __half __hmul_sat(__half a, __half b) { return __builtin_fminf(__builtin_fmaxf((float)(a * b), 0.0f), 1.0f); }
HW_FN bool __heq(__half a, __half b) { return a == b; }
HW_FN bool __hne(__half a, __half b) { return a != b; }
HW_FN bool __hlt(__half a, __half b) { return a < b; }
HW_FN bool __hle(__half a, __half b) { return a <= b; }
HW_FN bool __hgt(__half a, __half b) { return a > b; }
HW_FN bool __hge(__half a, __half b) { return a >= b; }
HW_FN bool __hisnan(__half a) { return (__half_as_ushort(a) & 0x7fff) > 0x7c00; }
HW_FN int __hisinf(__half a) { return (__half_as_ushort(a) & 0x7fff) == 0x7c00; }
HW_FN __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
HW_FN __half2 __hsub2(__half2 a, __half2 b) { return a - b; }
HW_FN __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
HW_FN __half2 __h2div(__half2 a, __half2 b) { return a / b; }
HW_FN __half2 __hneg2(__half2 a) { return -a; }
HW_FN __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
HW_FN __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
#if HW_AMD
    return __half2(__builtin_elementwise_fma((hw_half_pair)a, (hw_half_pair)b, (hw_half_pair)c));
#else
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
#endif
}
HW_FN __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
HW_FN __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
#define HW_HALF2_CMP(NAME, OP)                                                                                         \
    HW_FN __half2 __h##NAME##2(__half2 a, __half2 b) {                                                                 \
        return {(a.x OP b.x) ? 1.0f : 0.0f, (a.y OP b.y) ? 1.0f : 0.0f};                                               \
    }                                                                                                                  \
    HW_FN bool __hb##NAME##2(__half2 a, __half2 b) { return a.x OP b.x && a.y OP b.y; }
HW_HALF2_CMP(eq, ==)
HW_HALF2_CMP(ne, !=)
HW_HALF2_CMP(lt, <)
HW_HALF2_CMP(le, <=)
HW_HALF2_CMP(gt, >)
HW_HALF2_CMP(ge, >=)
#undef HW_HALF2_CMP

#define HW_HALF_MATH(NAME, HwF)                                                                                        \
    HW_FN __half h##NAME(__half v) { return HwF((float)v); }                                                           \
    HW_FN __half2 h2##NAME(__half2 v) { return {HwF((float)v.x), HwF((float)v.y)}; }
HW_HALF_MATH(exp, expf)
HW_HALF_MATH(exp2, exp2f)
HW_HALF_MATH(exp10, exp10f)
HW_HALF_MATH(log, logf)
HW_HALF_MATH(log2, log2f)
HW_HALF_MATH(log10, log10f)
HW_HALF_MATH(sqrt, sqrtf)
HW_HALF_MATH(rsqrt, rsqrtf)
HW_HALF_MATH(sin, sinf)
HW_HALF_MATH(cos, cosf)
HW_HALF_MATH(tanh, tanhf)
HW_HALF_MATH(ceil, ceilf)
HW_HALF_MATH(floor, floorf)
HW_HALF_MATH(trunc, truncf)
HW_HALF_MATH(rint, rintf)
#undef HW_HALF_MATH
HW_FN __half hrcp(__half v) { return 1.0f / (float)v; }
HW_FN __half2 h2rcp(__half2 v) { return {1.0f / (float)v.x, 1.0f / (float)v.y}; }
