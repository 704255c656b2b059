// The public names of device math: C's and HIP's, float and double, global and in namespace std.
//
// Own implementations (math_float.h, math_double.h, math_special.h) everywhere, or AMD's ocml where HW_OCML is set.
#pragma once
#include "../type_traits"
#include "math_float.h"

#if defined(HW_OCML) && HW_AMD
#include "ocml.h"
#define HW_PICK(NAME) hw_ocml_##NAME
#else
#define HW_OCML1(NAME, OCML)
#define HW_OCML2(NAME, OCML)
#define HW_PICK(NAME) hw_##NAME
#endif

#define HW_INTEGER(HwT) std::enable_if_t<__is_integral(HwT), double>
// NAMEf(float), NAME(double), NAME(float), and NAME(integer) through double as in C++.
#define HW_PUBLIC1(NAME, HwF, D)                                                                                       \
    HW_FN float NAME##f(float x) { return HwF(x); }                                                                    \
    HW_FN double NAME(double x) { return D(x); }                                                                       \
    HW_FN float NAME(float x) { return HwF(x); }                                                                       \
    template <class HwT> HW_FN HW_INTEGER(HwT) NAME(HwT x) { return D((double)x); }
#define HW_MATH1(NAME, OCML) HW_OCML1(NAME, OCML) HW_PUBLIC1(NAME, HW_PICK(NAME##f), HW_PICK(NAME))
// The same for two arguments; a mixed call goes through double.
#define HW_MIXED(HwA, HwB) std::enable_if_t<__is_arithmetic(HwA) && __is_arithmetic(HwB) && !__is_same(HwA, HwB), double>
#define HW_PUBLIC2(NAME, HwF, D)                                                                                       \
    HW_FN float NAME##f(float x, float y) { return HwF(x, y); }                                                        \
    HW_FN double NAME(double x, double y) { return D(x, y); }                                                          \
    HW_FN float NAME(float x, float y) { return HwF(x, y); }                                                           \
    template <class HwA, class HwB> HW_FN HW_MIXED(HwA, HwB) NAME(HwA x, HwB y) { return D((double)x, (double)y); }    \
    template <class HwT> HW_FN HW_INTEGER(HwT) NAME(HwT x, HwT y) { return D((double)x, (double)y); }
#define HW_MATH2(NAME, OCML) HW_OCML2(NAME, OCML) HW_PUBLIC2(NAME, HW_PICK(NAME##f), HW_PICK(NAME))

HW_MATH1(exp, exp)
HW_MATH1(exp2, exp2)
HW_MATH1(exp10, exp10)
HW_MATH1(expm1, expm1)
HW_MATH1(log, log)
HW_MATH1(log2, log2)
HW_MATH1(log10, log10)
HW_MATH1(log1p, log1p)
HW_MATH1(sqrt, sqrt)
HW_MATH1(rsqrt, rsqrt)
HW_MATH1(cbrt, cbrt)
HW_MATH1(sin, sin)
HW_MATH1(cos, cos)
HW_MATH1(tan, tan)
HW_MATH1(sinpi, sinpi)
HW_MATH1(cospi, cospi)
HW_MATH1(asin, asin)
HW_MATH1(acos, acos)
HW_MATH1(atan, atan)
HW_MATH1(sinh, sinh)
HW_MATH1(cosh, cosh)
HW_MATH1(tanh, tanh)
HW_MATH1(asinh, asinh)
HW_MATH1(acosh, acosh)
HW_MATH1(atanh, atanh)
HW_MATH1(erf, erf)
HW_MATH1(erfc, erfc)
HW_MATH1(erfcx, erfcx)
HW_MATH1(normcdf, ncdf)
HW_MATH1(lgamma, lgamma)
HW_MATH1(tgamma, tgamma)
HW_MATH2(pow, pow)
HW_MATH2(atan2, atan2)
HW_MATH2(hypot, hypot)
HW_MATH2(fmod, fmod)
HW_MATH2(remainder, remainder)
HW_MATH2(nextafter, nextafter)

HW_PUBLIC1(round, hw_roundf, hw_round)
HW_PUBLIC1(floor, __builtin_floorf, __builtin_floor)
HW_PUBLIC1(ceil, __builtin_ceilf, __builtin_ceil)
HW_PUBLIC1(trunc, __builtin_truncf, __builtin_trunc)
HW_PUBLIC1(rint, __builtin_rintf, __builtin_rint)
HW_PUBLIC1(nearbyint, __builtin_nearbyintf, __builtin_nearbyint)
HW_PUBLIC2(fmin, __builtin_fminf, __builtin_fmin)
HW_PUBLIC2(fmax, __builtin_fmaxf, __builtin_fmax)
HW_PUBLIC2(fdim, hw_fdimf, hw_fdim)
HW_PUBLIC2(copysign, __builtin_copysignf, __builtin_copysign)

HW_FN float erfinvf(float x) { return hw_erfinvf(x); }
HW_FN float erfinv(float x) { return hw_erfinvf(x); }
HW_FN float fabsf(float x) { return __builtin_fabsf(x); }
HW_FN double fabs(double x) { return __builtin_fabs(x); }
HW_FN float fabs(float x) { return __builtin_fabsf(x); }
HW_FN int abs(int x) { return x < 0 ? -x : x; }
HW_FN long abs(long x) { return x < 0 ? -x : x; }
HW_FN long long abs(long long x) { return x < 0 ? -x : x; }
HW_FN float abs(float x) { return __builtin_fabsf(x); }
HW_FN double abs(double x) { return __builtin_fabs(x); }
HW_FN long labs(long x) { return x < 0 ? -x : x; }
HW_FN long long llabs(long long x) { return x < 0 ? -x : x; }
HW_FN float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HW_FN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
HW_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HW_FN float ldexpf(float x, int k) { return hw_ldexpf(x, k); }
HW_FN double ldexp(double x, int k) { return hw_ldexp(x, k); }
HW_FN float ldexp(float x, int k) { return hw_ldexpf(x, k); }
HW_FN float scalbnf(float x, int k) { return hw_ldexpf(x, k); }
HW_FN double scalbn(double x, int k) { return hw_ldexp(x, k); }
HW_FN float frexpf(float x, int *e) { return hw_frexpf(x, e); }
HW_FN double frexp(double x, int *e) { return hw_frexp(x, e); }
HW_FN float frexp(float x, int *e) { return hw_frexpf(x, e); }
HW_FN float modff(float x, float *whole) { return hw_modff(x, whole); }
HW_FN double modf(double x, double *whole) { return hw_modf(x, whole); }
HW_FN float modf(float x, float *whole) { return hw_modff(x, whole); }
HW_FN int ilogbf(float x) { return hw_ilogb((double)x); }
HW_FN int ilogb(double x) { return hw_ilogb(x); }
HW_FN long lroundf(float x) { return (long)hw_roundf(x); }
HW_FN long lround(double x) { return (long)hw_round(x); }
HW_FN long long llroundf(float x) { return (long long)hw_roundf(x); }
HW_FN long long llround(double x) { return (long long)hw_round(x); }
HW_FN long lrintf(float x) { return (long)__builtin_rintf(x); }
HW_FN long lrint(double x) { return (long)__builtin_rint(x); }
HW_FN long long llrintf(float x) { return (long long)__builtin_rintf(x); }
HW_FN long long llrint(double x) { return (long long)__builtin_rint(x); }

#define HW_CLASS(NAME, EXPRESSION)                                                                                     \
    HW_FN bool NAME(float x) { return EXPRESSION; }                                                                    \
    HW_FN bool NAME(double x) { return EXPRESSION; }                                                                   \
    template <class HwT> HW_FN std::enable_if_t<__is_integral(HwT), bool> NAME(HwT v) {                                \
        double x = (double)v;                                                                                          \
        return EXPRESSION;                                                                                             \
    }
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
HW_CLASS(isnan, x != x)
HW_CLASS(isinf, __builtin_isinf(x))
HW_CLASS(isfinite, __builtin_isfinite(x))
HW_CLASS(signbit, __builtin_signbit(x))
#undef HW_CLASS
HW_FN bool __finitef(float x) { return __builtin_isfinite(x); }
HW_FN bool __isnanf(float x) { return x != x; }
HW_FN bool __isinff(float x) { return __builtin_isinf(x); }

// One reduction serves both.
HW_FN void sincosf(float x, float *s, float *c) {
#if defined(HW_OCML) && HW_AMD
    *s = hw_ocml_sinf(x), *c = hw_ocml_cosf(x);
#else
    if (!(__builtin_fabsf(x) < HW_INFF)) {
        *s = *c = __builtin_nanf("");
        return;
    }
    float r;
    int q = hw_reducef(x, &r);
    *s = x == 0.0f ? x : hw_quadrant_sinf(q, r);
    *c = hw_quadrant_sinf(q + 1, r);
#endif
}
HW_FN void sincos(double x, double *s, double *c) { *s = sin(x), *c = cos(x); }
HW_FN void sincos(float x, float *s, float *c) { sincosf(x, s, c); }
HW_FN void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
HW_FN void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
HW_FN float rnorm3df(float a, float b, float c) { return rsqrtf(a * a + b * b + c * c); }
HW_FN float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }

// ---------------------------------------------------------------- min and max (HIP's: NaN loses for floats)

#define HW_MINMAX(HwT)                                                                                                 \
    HW_CFN HwT min(HwT a, HwT b) { return b < a ? b : a; }                                                             \
    HW_CFN HwT max(HwT a, HwT b) { return a < b ? b : a; }
HW_MINMAX(int)
HW_MINMAX(unsigned)
HW_MINMAX(long)
HW_MINMAX(unsigned long)
HW_MINMAX(long long)
HW_MINMAX(unsigned long long)
#undef HW_MINMAX
HW_FN float min(float a, float b) { return __builtin_fminf(a, b); }
HW_FN float max(float a, float b) { return __builtin_fmaxf(a, b); }
HW_FN double min(double a, double b) { return __builtin_fmin(a, b); }
HW_FN double max(double a, double b) { return __builtin_fmax(a, b); }
template <class HwA, class HwB, class = HW_MIXED(HwA, HwB)> HW_CFN auto min(HwA a, HwB b) -> decltype(a + b) {
    typedef decltype(a + b) HwT;
    return min((HwT)a, (HwT)b);
}
template <class HwA, class HwB, class = HW_MIXED(HwA, HwB)> HW_CFN auto max(HwA a, HwB b) -> decltype(a + b) {
    typedef decltype(a + b) HwT;
    return max((HwT)a, (HwT)b);
}

// ---------------------------------------------------------------- fast and rounding intrinsics

#if HW_AMD
HW_FN float __expf(float x) { return __builtin_amdgcn_exp2f(x * 0x1.715476p+0f); }
HW_FN float __exp10f(float x) { return __builtin_amdgcn_exp2f(x * 0x1.a934fp+1f); }
HW_FN float __log2f(float x) { return __builtin_amdgcn_logf(x); }
HW_FN float __logf(float x) { return __builtin_amdgcn_logf(x) * 0x1.62e43p-1f; }
HW_FN float __log10f(float x) { return __builtin_amdgcn_logf(x) * 0x1.344136p-2f; }
HW_FN float __sinf(float x) { return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)); }
HW_FN float __cosf(float x) { return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)); }
HW_FN float __fdividef(float a, float b) { return a * __builtin_amdgcn_rcpf(b); }
#else
HW_FN float __expf(float x) { return hw_expf(x); }
HW_FN float __exp10f(float x) { return hw_exp10f(x); }
HW_FN float __log2f(float x) { return hw_log2f(x); }
HW_FN float __logf(float x) { return hw_logf(x); }
HW_FN float __log10f(float x) { return hw_log10f(x); }
HW_FN float __sinf(float x) { return hw_sinf(x); }
HW_FN float __cosf(float x) { return hw_cosf(x); }
HW_FN float __fdividef(float a, float b) { return a / b; }
#endif
HW_FN float __powf(float x, float y) { return __expf(y * __logf(x)); }
HW_FN float __tanf(float x) { return __fdividef(__sinf(x), __cosf(x)); }
HW_FN void __sincosf(float x, float *s, float *c) { *s = __sinf(x), *c = __cosf(x); }
HW_FN float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }
HW_FN float __frcp_rn(float x) { return 1.0f / x; }
HW_FN float __frsqrt_rn(float x) { return hw_rsqrtf(x); }
HW_FN float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
HW_FN double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
HW_FN double __drcp_rn(double x) { return 1.0 / x; }
#pragma STDC FP_CONTRACT OFF
HW_FN float __fadd_rn(float a, float b) { return a + b; } // never contracted
HW_FN float __fsub_rn(float a, float b) { return a - b; }
HW_FN float __fmul_rn(float a, float b) { return a * b; }
HW_FN float __fdiv_rn(float a, float b) { return a / b; }
HW_FN double __dadd_rn(double a, double b) { return a + b; }
HW_FN double __dsub_rn(double a, double b) { return a - b; }
HW_FN double __dmul_rn(double a, double b) { return a * b; }
HW_FN double __ddiv_rn(double a, double b) { return a / b; }
#pragma STDC FP_CONTRACT DEFAULT
HW_FN float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HW_FN double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
HW_FN int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
HW_FN int __float2int_rz(float x) { return (int)x; }
HW_FN int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
HW_FN int __float2int_ru(float x) { return (int)__builtin_ceilf(x); }
HW_FN unsigned __float2uint_rn(float x) { return (unsigned)__builtin_rintf(x); }
HW_FN unsigned __float2uint_rz(float x) { return (unsigned)x; }
HW_FN long long __float2ll_rn(float x) { return (long long)__builtin_rintf(x); }
HW_FN float __int2float_rn(int x) { return (float)x; }
HW_FN float __uint2float_rn(unsigned x) { return (float)x; }
HW_FN float __ll2float_rn(long long x) { return (float)x; }
HW_FN double __int2double_rn(int x) { return (double)x; }
HW_FN float __double2float_rn(double x) { return (float)x; }
HW_FN int __double2int_rn(double x) { return (int)__builtin_rint(x); }
HW_FN int __double2int_rz(double x) { return (int)x; }

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_huge_val()
#define HUGE_VALF __builtin_huge_valf()
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440

namespace std {
using ::abs, ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atan2, ::atanh, ::cbrt, ::ceil, ::copysign, ::cos, ::cosh;
using ::erf, ::erfc, ::exp, ::exp2, ::expm1, ::fabs, ::fdim, ::floor, ::fma, ::fmax, ::fmin, ::fmod, ::frexp, ::hypot;
using ::ilogb, ::isfinite, ::isinf, ::isnan, ::ldexp, ::lgamma, ::log, ::log10, ::log1p, ::log2, ::modf, ::nearbyint;
using ::nextafter, ::pow, ::remainder, ::rint, ::round, ::scalbn, ::signbit, ::sin, ::sinh, ::sqrt, ::tan, ::tanh;
using ::tgamma, ::trunc, ::lround, ::lrint, ::expf, ::logf, ::sqrtf, ::powf, ::sinf, ::cosf, ::tanhf, ::fabsf, ::erff;
} // namespace std
