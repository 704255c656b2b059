// The public names of device math under NVRTC: CUDA's own functions, and what HIP has beside them.
//
// NVRTC declares C's names with overloads for float; integers, mixed arguments and namespace std are added here.
#pragma once
#include "../type_traits"
#include "attr.h"
#undef NAN
#undef INFINITY

#define HW_INTEGER(HwT) std::enable_if_t<__is_integral(HwT), double>
#define HW_MIXED(HwA, HwB) std::enable_if_t<__is_arithmetic(HwA) && __is_arithmetic(HwB) && !__is_same(HwA, HwB), double>
#define HW_MATH1(NAME)                                                                                                 \
    template <class HwT> HW_FN HW_INTEGER(HwT) NAME(HwT x) { return NAME((double)x); }
#define HW_MATH1_FLOAT(NAME) /* CUDA has no float overload of these */                                                 \
    HW_FN float NAME(float x) { return NAME##f(x); }                                                                   \
    HW_MATH1(NAME)
#define HW_MATH2(NAME)                                                                                                 \
    template <class HwA, class HwB> HW_FN HW_MIXED(HwA, HwB) NAME(HwA x, HwB y) { return NAME((double)x, (double)y); } \
    template <class HwT> HW_FN HW_INTEGER(HwT) NAME(HwT x, HwT y) { return NAME((double)x, (double)y); }
HW_MATH1(exp)
HW_MATH1(exp2)
HW_MATH1(exp10)
HW_MATH1(expm1)
HW_MATH1(log)
HW_MATH1(log2)
HW_MATH1(log10)
HW_MATH1(log1p)
HW_MATH1(sqrt)
HW_MATH1(rsqrt)
HW_MATH1(cbrt)
HW_MATH1(sin)
HW_MATH1(cos)
HW_MATH1(tan)
HW_MATH1(sinpi)
HW_MATH1(cospi)
HW_MATH1(asin)
HW_MATH1(acos)
HW_MATH1(atan)
HW_MATH1(sinh)
HW_MATH1(cosh)
HW_MATH1(tanh)
HW_MATH1(asinh)
HW_MATH1(acosh)
HW_MATH1(atanh)
HW_MATH1(erf)
HW_MATH1(erfc)
HW_MATH1(erfcx)
HW_MATH1(normcdf)
HW_MATH1(lgamma)
HW_MATH1(tgamma)
HW_MATH1(round)
HW_MATH1(floor)
HW_MATH1(ceil)
HW_MATH1(trunc)
HW_MATH1(rint)
HW_MATH1(nearbyint)
HW_MATH2(pow)
HW_MATH2(atan2)
HW_MATH2(hypot)
HW_MATH2(fmod)
HW_MATH2(remainder)
HW_MATH2(nextafter)
HW_MATH2(fmin)
HW_MATH2(fmax)
HW_MATH2(fdim)
HW_MATH2(copysign)

#define HW_CLASS(NAME, EXPRESSION)                                                                                     \
    template <class HwT> HW_FN std::enable_if_t<__is_integral(HwT), bool> NAME(HwT v) { return EXPRESSION; }
HW_CLASS(isnan, false)
HW_CLASS(isinf, false)
HW_CLASS(isfinite, true)
HW_CLASS(signbit, v < 0)
#undef HW_CLASS

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
HW_FN float min(float a, float b) { return fminf(a, b); }
HW_FN float max(float a, float b) { return fmaxf(a, b); }
HW_FN double min(double a, double b) { return fmin(a, b); }
HW_FN double max(double a, double b) { return fmax(a, b); }
template <class HwA, class HwB, class = HW_MIXED(HwA, HwB)> HW_CFN auto min(HwA a, HwB b) -> decltype(a + b) {
    typedef decltype(a + b) HwT;
    return min((HwT)a, (HwT)b);
}
template <class HwA, class HwB, class = HW_MIXED(HwA, HwB)> HW_CFN auto max(HwA a, HwB b) -> decltype(a + b) {
    typedef decltype(a + b) HwT;
    return max((HwT)a, (HwT)b);
}

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
