// Error and gamma functions, remainders, neighbours.
#pragma once
#include "math_double.h"
#pragma STDC FP_CONTRACT OFF

// ---------------------------------------------------------------- error functions

// e^(x^2) erfc(x) for x >= 0.5, by a polynomial in (x - 4) / (x + 4).
HW_FN double hw_erfcx_core(double x) {
    double t = (x - 4.0) / (x + 4.0);
    return hw_p_erfcx(t) / (1.0 + 2.0 * x);
}
HW_FN double hw_erfc_core(double x) { // x >= 0.5
    if (x > 27.3) return 0.0;
    hw_dd s = hw_two_prod(x, x);
    return hw_exp_dd(-s.hi, -s.lo) * hw_erfcx_core(x);
}
HW_FN double hw_erf(double x) {
    double a = __builtin_fabs(x);
    if (x != x) return x;
    if (a < 1.0) return __builtin_fma(x, hw_p_erf(x * x), x);
    return hw_copysign(1.0 - hw_erfc_core(a), x);
}
HW_FN double hw_erfc(double x) {
    if (x != x) return x;
    if (x >= 0.5) return hw_erfc_core(x);
    return x > -0.5 ? 1.0 - hw_erf(x) : 2.0 - hw_erfc_core(-x);
}
HW_FN double hw_erfcx(double x) {
    if (x != x) return x;
    if (x >= 0.5) return x > 0x1p60 ? 0x1.20dd750429b6dp-1 / x : hw_erfcx_core(x);
    if (x < -26.7) return HW_INF;
    hw_dd s = hw_two_prod(x, x);
    return hw_exp_dd(s.hi, s.lo) * hw_erfc(x);
}
// The normal distribution function: erfc(-x / sqrt 2) / 2, corrected for the rounding of the argument.
HW_FN double hw_normcdf(double x) {
    if (x != x) return x;
    if (x < -39.0) return 0.0;
    if (x > 9.0) return 1.0;
    hw_dd t = hw_two_prod(-x, 0x1.6a09e667f3bcdp-1);
    double lo = __builtin_fma(x, 0x1.bdd3413b26456p-55, t.lo), e = hw_erfc(t.hi);
    return 0.5 * __builtin_fma(-0x1.20dd750429b6dp+0 * hw_exp(-t.hi * t.hi), lo, e);
}

// ---------------------------------------------------------------- gamma functions

// ln Gamma(x) for x > 0.
HW_FN double hw_lgamma_positive(double x) {
    if (x >= 10.0) { // Stirling's series; its terms end below 2^-53 from 10 on
        if (x > 0x1p60) return x * (hw_log(x) - 1.0);
        double r = 1.0 / x, z = r * r;
        double p = -1.0 / 1680 + z * (1.0 / 1188 + z * (-691.0 / 360360 + z * (1.0 / 156)));
        double tail = r * (1.0 / 12 + z * (-1.0 / 360 + z * (1.0 / 1260 + z * p)));
        hw_dd l = hw_log_dd(x), q = hw_dd_scale(l, x - 0.5), s = hw_two_sum(q.hi, -x);
        return s.hi + (s.lo + q.lo + (0x1.d67f1c864beb5p-1 + tail));
    }
    if (x < 1.0) return x * (x - 1.0) * hw_p_lgamma(x - 0.5) - hw_log(x);
    double product = 1.0;
    while (x > 2.0) x -= 1.0, product *= x;
    double core = (x - 1.0) * (x - 2.0) * hw_p_lgamma(x - 1.5);
    return product == 1.0 ? core : core + hw_log(product);
}
HW_FN double hw_lgamma(double x) {
    if (x != x) return x;
    if (hw_isinf(x)) return HW_INF;
    if (x > 0) return hw_lgamma_positive(x);
    if (x == __builtin_trunc(x)) return HW_INF;
    if (x > -0x1p-60) return -hw_log(-x);
    double s = __builtin_fabs(hw_sinpi(x));
    return hw_log(2.0 * HW_PIO2_HI / (s * -x)) - hw_lgamma_positive(-x); // reflection
}
HW_FN double hw_tgamma_positive(double x) {
    if (x > 171.7) return HW_INF;
    if (x > 12.0) {
        double r = 1.0 / x, z = r * r;
        double p = 1.0 / 1260 + z * (-1.0 / 1680 + z * (1.0 / 1188 + z * (-691.0 / 360360)));
        hw_dd l = hw_log_dd(x), q = hw_dd_scale(l, x - 0.5), s = hw_two_sum(q.hi, -x);
        double tail = r * (1.0 / 12 + z * (-1.0 / 360 + z * p));
        hw_dd h = hw_two_sum(s.hi, 0x1.d67f1c864beb5p-1);
        return hw_exp_dd(h.hi, h.lo + s.lo + q.lo + tail);
    }
    double product = 1.0;
    while (x > 2.0) x -= 1.0, product *= x;
    double below = 1.0;
    while (x < 1.0) below *= x, x += 1.0;
    return product / (below * hw_p_rgamma(x - 1.5));
}
HW_FN double hw_tgamma(double x) {
    if (x != x || x == HW_INF) return x;
    if (x == 0) return hw_copysign(HW_INF, x);
    if (x > 0) return hw_tgamma_positive(x);
    if (x == __builtin_trunc(x)) return HW_NAN;
    if (x < -171.0) return 0.0; // below 1e-309
    return -2.0 * HW_PIO2_HI / (hw_sinpi(-x) * -x * hw_tgamma_positive(-x)); // reflection
}

// ---------------------------------------------------------------- remainders: exact

HW_FN double hw_fmod(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    if (!(a < HW_INF) || b != b || b == 0) return HW_NAN;
    if (a < b) return x;
    int ea, eb;
    hw_u64 m = (hw_u64)(hw_frexp(a, &ea) * 0x1p53), n = (hw_u64)(hw_frexp(b, &eb) * 0x1p53);
    int left = ea - eb;
    m %= n;
    while (left > 0 && m) { // 11 bits at a time keep the shifted remainder within 64
        int step = left < 11 ? left : 11;
        m = (m << step) % n;
        left -= step;
    }
    return hw_copysign(hw_ldexp((double)m, eb - 53), x);
}
HW_FN float hw_fmodf(float x, float y) {
    float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    if (!(a < __builtin_inff()) || b != b || b == 0) return __builtin_nanf("");
    if (a < b) return x;
    if (a < b * 0x1p22f && b > 0x1p-100f) { // the quotient is off by one at most, so one correction makes it exact
        float r = __builtin_fmaf(-__builtin_truncf(a / b), b, a);
        if (r < 0) r += b;
        if (r >= b) r -= b;
        return hw_copysignf(r, x);
    }
    return (float)hw_fmod((double)x, (double)y);
}
HW_FN double hw_remainder(double x, double y) { // IEEE: the quotient is rounded to even
    double b = __builtin_fabs(y);
    if (!hw_isfinite(x) || b != b || b == 0) return HW_NAN;
    if (b == HW_INF) return x;
    double r = b < 0x1p1022 ? hw_fmod(x, 2.0 * b) : x, a = __builtin_fabs(r);
    if (b < 0x1p-1021) {
        if (a + a > b) a -= b;
        if (a > 0 && a + a >= b) a -= b;
    } else {
        double half = 0.5 * b;
        if (a > half) {
            a -= b;
            if (a >= half) a -= b;
        }
    }
    return hw_copysign(1.0, r) * a == 0 ? hw_copysign(0.0, x) : hw_copysign(1.0, r) * a;
}
HW_FN float hw_remainderf(float x, float y) { return (float)hw_remainder((double)x, (double)y); }

// ---------------------------------------------------------------- parts and neighbours

HW_FN double hw_modf(double x, double *whole) {
    *whole = __builtin_trunc(x);
    return hw_isinf(x) ? hw_copysign(0.0, x) : hw_copysign(x - *whole, x);
}
HW_FN float hw_modff(float x, float *whole) {
    *whole = __builtin_truncf(x);
    return hw_isinf(x) ? hw_copysignf(0.0f, x) : hw_copysignf(x - *whole, x);
}
HW_FN int hw_ilogb(double x) {
    if (x == 0 || x != x) return -__INT_MAX__ - 1;
    if (hw_isinf(x)) return __INT_MAX__;
    int e;
    hw_frexp(x, &e);
    return e - 1;
}
HW_FN double hw_nextafter(double x, double y) {
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    if (x == 0) return hw_copysign(__DBL_DENORM_MIN__, y);
    hw_i64 u = hw_bits<hw_i64>(x);
    return hw_bits<double>((x < y) == (x > 0) ? u + 1 : u - 1);
}
HW_FN float hw_nextafterf(float x, float y) {
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    if (x == 0) return hw_copysignf(__FLT_DENORM_MIN__, y);
    int u = hw_bits<int>(x);
    return hw_bits<float>((x < y) == (x > 0) ? u + 1 : u - 1);
}
HW_FN double hw_fdim(double x, double y) { return x != x || y != y ? HW_NAN : x > y ? x - y : 0.0; }
HW_FN float hw_fdimf(float x, float y) { return x != x || y != y ? __builtin_nanf("") : x > y ? x - y : 0.0f; }
#pragma STDC FP_CONTRACT DEFAULT
