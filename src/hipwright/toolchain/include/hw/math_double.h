// Device math in double: elementary functions, within 1 to 4 ulp (measured table: docs/toolchain.md).
#pragma once
#include "math_core.h"
#pragma STDC FP_CONTRACT OFF

HW_FN double hw_sqrt(double x) { return __builtin_sqrt(x); }
HW_FN double hw_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

// ---------------------------------------------------------------- exponentials and logarithms

HW_FN double hw_exp_clamped(double x, double hi, double lo) { // NaN and range by x, value by hi + lo
    if (x != x) return x;
    if (x > 709.79) return HW_INF;
    if (x < -745.2) return 0.0;
    return hw_exp_dd(hi, lo);
}
HW_FN double hw_exp(double x) { return hw_exp_clamped(x, x, 0.0); }
HW_FN double hw_exp2(double x) {
    if (x != x) return x;
    if (x >= 1024.0) return HW_INF;
    if (x < -1075.0) return 0.0;
    double k = __builtin_rint(x), f = x - k;
    hw_dd r = hw_two_prod(f, 0x1.62e42fefa39efp-1);
    r.lo = __builtin_fma(f, 0x1.abc9e3b39803fp-56, r.lo);
    return hw_ldexp(1.0 + (r.hi + (r.lo + r.hi * r.hi * hw_p_exp(r.hi))), (int)k);
}
HW_FN double hw_exp10(double x) {
    if (x != x) return x;
    if (x > 308.26) return HW_INF;
    if (x < -323.7) return 0.0;
    hw_dd p = hw_two_prod(x, 0x1.26bb1bbb55516p+1);
    return hw_exp_dd(p.hi, __builtin_fma(x, -0x1.f48ad494ea3e9p-53, p.lo));
}
HW_FN double hw_expm1(double x) {
    if (x != x || x == 0) return x;
    if (x > 709.79) return HW_INF;
    if (x < -40.0) return -1.0;
    int k;
    double m = hw_expm1_core(x, &k);
    if (k == 0) return m;
    if (k > 60) return hw_ldexp(1.0 + m, k);
    double scale = hw_pow2(k);
    return __builtin_fma(scale, m, scale - 1.0);
}
// Logarithms share the edges: NaN and negatives give NaN, 0 gives -inf, inf gives inf.
HW_FN bool hw_log_edge(double x, double *result) {
    if (x > 0 && x < HW_INF) return false;
    *result = x == 0 ? -HW_INF : x < 0 ? HW_NAN : x;
    return true;
}
HW_FN double hw_log(double x) {
    double edge;
    if (hw_log_edge(x, &edge)) return edge;
    return hw_log_dd(x).hi;
}
HW_FN double hw_log2(double x) {
    double edge;
    if (hw_log_edge(x, &edge)) return edge;
    hw_dd l = hw_log_dd(x), p = hw_two_prod(l.hi, HW_LOG2E);
    return p.hi + (p.lo + l.lo * HW_LOG2E + l.hi * 0x1.777d0ffda0d24p-56);
}
HW_FN double hw_log10(double x) {
    double edge;
    if (hw_log_edge(x, &edge)) return edge;
    hw_dd l = hw_log_dd(x), p = hw_two_prod(l.hi, 0x1.bcb7b1526e50ep-2);
    return p.hi + (p.lo + l.lo * 0x1.bcb7b1526e50ep-2 + l.hi * 0x1.95355baaafad3p-57);
}
HW_FN double hw_log1p(double x) {
    if (x != x || x == 0 || x == HW_INF) return x;
    if (x <= -1.0) return x == -1.0 ? -HW_INF : HW_NAN;
    hw_dd u = hw_two_sum(1.0, x), l = hw_log_dd(u.hi);
    return l.hi + (l.lo + u.lo / u.hi);
}

// ---------------------------------------------------------------- powers and roots

// 0: not an integer, 1: odd, 2: even.
HW_FN int hw_parity(double y) {
    double a = __builtin_fabs(y);
    if (a >= 0x1p53) return 2;
    if (a != __builtin_trunc(a)) return 0;
    return ((hw_i64)a & 1) ? 1 : 2;
}
// The cases of pow that need no logarithm (IEEE 754-2019, 9.2.1); true when *result is set.
HW_FN bool hw_pow_edge(double x, double y, double *result) {
    double a = __builtin_fabs(x);
    if (y == 0 || x == 1.0) return *result = 1.0, true;
    if (x != x || y != y) return *result = x + y, true;
    if (hw_isinf(y)) return *result = a == 1.0 ? 1.0 : ((a > 1.0) == (y > 0)) ? HW_INF : 0.0, true;
    int parity = hw_parity(y);
    if (a == 0 || a == HW_INF) {
        double r = ((a == 0) == (y < 0)) ? HW_INF : 0.0;
        return *result = parity == 1 ? hw_copysign(r, x) : r, true;
    }
    if (x < 0 && parity == 0) return *result = HW_NAN, true;
    return false;
}
HW_FN double hw_pow(double x, double y) {
    double edge;
    if (hw_pow_edge(x, y, &edge)) return edge;
    hw_dd l = hw_log_dd(__builtin_fabs(x)), p = hw_two_prod(y, l.hi);
    double lo = __builtin_fma(y, l.lo, p.lo);
    if (!hw_isfinite(p.hi)) lo = 0.0;
    double r = hw_exp_clamped(p.hi, p.hi, lo);
    return x < 0 && hw_parity(y) == 1 ? -r : r;
}
HW_FN double hw_cbrt(double x) {
    if (x == 0 || !hw_isfinite(x)) return x;
    double a = __builtin_fabs(x);
    int shift = 0;
    if (a < 0x1p-1022) a *= 0x1p54, shift = -18;
    double y = hw_bits<double>(hw_bits<hw_u64>(a) / 3 + 0x2a9f7893782da1ceULL); // within 5 %
    for (int i = 0; i < 3; ++i) { // Halley
        double c = y * y * y;
        y = y * ((c + 2.0 * a) / (2.0 * c + a));
    }
    hw_dd s = hw_two_prod(y, y), c = hw_two_prod(s.hi, y);
    double error = (c.hi - a) + (c.lo + s.lo * y);
    y -= error / (3.0 * s.hi);
    return hw_copysign(hw_ldexp(y, shift), x);
}
HW_FN double hw_hypot(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    if (a == HW_INF || b == HW_INF) return HW_INF;
    if (a < b) {
        double t = a;
        a = b, b = t;
    }
    if (!(b > a * 0x1p-54)) return a + b;
    double scale = a > 0x1p500 ? 0x1p-600 : b < 0x1p-450 ? 0x1p600 : 1.0;
    a *= scale, b *= scale;
    hw_dd aa = hw_two_prod(a, a), bb = hw_two_prod(b, b), s = hw_fast_two_sum(aa.hi, bb.hi);
    s.lo += aa.lo + bb.lo;
    double h = __builtin_sqrt(s.hi);
    h += (__builtin_fma(-h, h, s.hi) + s.lo) / (2.0 * h);
    return h * (1.0 / scale);
}

// ---------------------------------------------------------------- circular functions

HW_FN double hw_sin_kernel(hw_dd r) {
    double z = r.hi * r.hi;
    double tail = z * r.hi * hw_p_sin(z);
    return r.hi + (tail + r.lo * __builtin_fma(-0.5, z, 1.0));
}
HW_FN double hw_cos_kernel(hw_dd r) {
    double z = r.hi * r.hi, h = 0.5 * z, w = 1.0 - h;
    return w + (((1.0 - w) - h) + (z * z * hw_p_cos(z) - r.hi * r.lo));
}
HW_FN double hw_quadrant_sin(int q, hw_dd r) {
    double v = (q & 1) ? hw_cos_kernel(r) : hw_sin_kernel(r);
    return (q & 2) ? -v : v;
}
HW_FN double hw_sin(double x) {
    if (!hw_isfinite(x)) return HW_NAN;
    if (__builtin_fabs(x) < 0x1p-27) return x;
    hw_dd r;
    int q = hw_reduce(x, &r);
    return hw_quadrant_sin(q, r);
}
HW_FN double hw_cos(double x) {
    if (!hw_isfinite(x)) return HW_NAN;
    hw_dd r;
    int q = hw_reduce(x, &r);
    return hw_quadrant_sin(q + 1, r);
}
HW_FN double hw_tan(double x) {
    if (!hw_isfinite(x)) return HW_NAN;
    if (__builtin_fabs(x) < 0x1p-27) return x;
    hw_dd r;
    int q = hw_reduce(x, &r);
    double s = hw_sin_kernel(r), c = hw_cos_kernel(r);
    return (q & 1) ? -c / s : s / c;
}
// x = q/2 + f with |f| <= 1/4, and pi f in double-double.
HW_FN int hw_reduce_pi(double x, hw_dd *r) {
    double t = x - 2.0 * __builtin_rint(0.5 * x), n = __builtin_rint(2.0 * t), f = __builtin_fma(-0.5, n, t);
    *r = hw_two_prod(f, 2.0 * HW_PIO2_HI);
    r->lo = __builtin_fma(f, 2.0 * HW_PIO2_LO, r->lo);
    return (int)n & 3;
}
HW_FN double hw_sinpi(double x) {
    if (!hw_isfinite(x)) return HW_NAN;
    hw_dd r;
    int q = hw_reduce_pi(x, &r);
    double v = hw_quadrant_sin(q, r);
    return v == 0 ? hw_copysign(0.0, x) : v;
}
HW_FN double hw_cospi(double x) {
    if (!hw_isfinite(x)) return HW_NAN;
    hw_dd r;
    int q = hw_reduce_pi(x, &r);
    double v = hw_quadrant_sin(q + 1, r);
    return v == 0 ? 0.0 : v;
}

HW_FN double hw_asin(double x) {
    double a = __builtin_fabs(x);
    if (!(a <= 1.0)) return HW_NAN;
    if (a <= 0.5) return __builtin_fma(x, x * x * hw_p_asin(x * x), x);
    double z = 0.5 * (1.0 - a), s = __builtin_sqrt(z);
    double w = s * z * hw_p_asin(z) + (s > 0 ? __builtin_fma(-s, s, z) / (2.0 * s) : 0.0);
    hw_dd d = hw_fast_two_sum(HW_PIO2_HI, -2.0 * s);
    return hw_copysign(d.hi + (d.lo + (HW_PIO2_LO - 2.0 * w)), x);
}
HW_FN double hw_acos(double x) {
    double a = __builtin_fabs(x);
    if (!(a <= 1.0)) return HW_NAN;
    if (a <= 0.5) {
        hw_dd d = hw_fast_two_sum(HW_PIO2_HI, -x);
        return d.hi + (d.lo + (HW_PIO2_LO - x * x * x * hw_p_asin(x * x)));
    }
    double z = 0.5 * (1.0 - a), s = __builtin_sqrt(z);
    double w = s * z * hw_p_asin(z) + (s > 0 ? __builtin_fma(-s, s, z) / (2.0 * s) : 0.0);
    if (x > 0) return 2.0 * (s + w);
    hw_dd d = hw_fast_two_sum(2.0 * HW_PIO2_HI, -2.0 * s);
    return d.hi + (d.lo + (2.0 * HW_PIO2_LO - 2.0 * w));
}
// atan(t + lo) for 0 <= t <= 1.
HW_FN double hw_atan_kernel(double t, double lo) {
    double z = t * t;
    return t + __builtin_fma(t * z, hw_p_atan(z), lo / (1.0 + z));
}
HW_FN double hw_atan(double x) {
    if (x != x) return x;
    double a = __builtin_fabs(x);
    if (a <= 1.0) return hw_copysign(hw_atan_kernel(a, 0.0), x);
    double t = 1.0 / a, lo = a < 0x1p500 ? __builtin_fma(-t, a, 1.0) * t : 0.0;
    return hw_copysign(HW_PIO2_HI - (hw_atan_kernel(t, lo) - HW_PIO2_LO), x);
}
HW_FN double hw_atan2(double y, double x) {
    if (x != x || y != y) return x + y;
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    bool steep = b > a;
    double num = steep ? a : b, den = steep ? b : a;
    double t = den == 0 ? 0.0 : num == den ? 1.0 : num / den; // inf / inf counts as 1
    bool exact = t < 0x1p-900 || den > 0x1p900 || num == den;
    double k = hw_atan_kernel(t, exact ? 0.0 : __builtin_fma(-t, den, num) / den);
    if (steep) k = HW_PIO2_HI - (k - HW_PIO2_LO);
    if (__builtin_signbit(x)) k = 2.0 * HW_PIO2_HI - (k - 2.0 * HW_PIO2_LO);
    return hw_copysign(k, y);
}

// ---------------------------------------------------------------- hyperbolic functions

HW_FN double hw_sinh(double x) {
    double a = __builtin_fabs(x);
    if (x != x || a == HW_INF || a < 0x1p-28) return x;
    if (a < 22.0) {
        double t = hw_expm1(a);
        return hw_copysign(0.5 * (t + t / (t + 1.0)), x);
    }
    double e = hw_exp(0.5 * a);
    return hw_copysign((0.5 * e) * e, x);
}
HW_FN double hw_cosh(double x) {
    double a = __builtin_fabs(x);
    if (x != x) return x;
    if (a < 22.0) {
        double e = hw_exp(a);
        return 0.5 * e + 0.5 / e;
    }
    double e = hw_exp(0.5 * a);
    return (0.5 * e) * e;
}
HW_FN double hw_tanh(double x) {
    double a = __builtin_fabs(x);
    if (x != x || a < 0x1p-28) return x;
    if (a > 22.0) return hw_copysign(1.0, x);
    double t = hw_expm1(2.0 * a);
    return hw_copysign(t / (t + 2.0), x);
}
HW_FN double hw_asinh(double x) {
    double a = __builtin_fabs(x);
    if (x != x || a == HW_INF || a < 0x1p-28) return x;
    if (a > 0x1p28) return hw_copysign(hw_log(a) + 0x1.62e42fefa39efp-1, x);
    return hw_copysign(hw_log1p(a + a * a / (1.0 + __builtin_sqrt(a * a + 1.0))), x);
}
HW_FN double hw_acosh(double x) {
    if (!(x >= 1.0)) return HW_NAN;
    if (x > 0x1p28) return hw_log(x) + 0x1.62e42fefa39efp-1;
    double t = x - 1.0;
    return hw_log1p(t + __builtin_sqrt(2.0 * t + t * t));
}
HW_FN double hw_atanh(double x) {
    double a = __builtin_fabs(x);
    if (x != x || a < 0x1p-28) return x;
    if (a >= 1.0) return a == 1.0 ? hw_copysign(HW_INF, x) : HW_NAN;
    return hw_copysign(0.5 * hw_log1p(2.0 * a / (1.0 - a)), x);
}
#pragma STDC FP_CONTRACT DEFAULT
