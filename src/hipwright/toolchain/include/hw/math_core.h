// What all of our device math stands on: bit work, double-double arithmetic, rounding, scaling, argument reduction.
//
// Everything is inline and free of libm, so that one source serves AMD code objects and the cpu target. Contraction is
// off here: the error-free transformations below (Dekker 1971, Knuth TAOCP 2) rely on every operation as written.
#pragma once
#include "attr.h"
#include "poly.h"
#pragma STDC FP_CONTRACT OFF

#define HW_INF __builtin_inf()
#define HW_NAN __builtin_nan("")
#define HW_PIO2_HI 0x1.921fb54442d18p+0
#define HW_PIO2_LO 0x1.1a62633145c07p-54
#define HW_LN2_HI 0x1.62e42fee00000p-1
#define HW_LN2_LO 0x1.a39ef35793c76p-33
#define HW_LOG2E 0x1.71547652b82fep+0

typedef unsigned long long hw_u64;
typedef long long hw_i64;

struct hw_dd { // an unevaluated sum hi + lo, |lo| <= ulp(hi) / 2
    double hi, lo;
};
HW_FN hw_dd hw_fast_two_sum(double a, double b) { // exact for |a| >= |b|
    double s = a + b;
    return {s, b - (s - a)};
}
HW_FN hw_dd hw_two_sum(double a, double b) {
    double s = a + b, t = s - a;
    return {s, (a - (s - t)) + (b - t)};
}
HW_FN hw_dd hw_two_prod(double a, double b) {
    double p = a * b;
    return {p, __builtin_fma(a, b, -p)};
}
HW_FN hw_dd hw_dd_scale(hw_dd a, double b) {
    hw_dd p = hw_two_prod(a.hi, b);
    return hw_fast_two_sum(p.hi, __builtin_fma(a.lo, b, p.lo));
}

HW_FN double hw_copysign(double x, double s) { return __builtin_copysign(x, s); }
HW_FN float hw_copysignf(float x, float s) { return __builtin_copysignf(x, s); }
HW_FN bool hw_isnan(double x) { return x != x; }
HW_FN bool hw_isinf(double x) { return __builtin_fabs(x) == HW_INF; }
HW_FN bool hw_isfinite(double x) { return __builtin_fabs(x) < HW_INF; }

HW_FN double hw_round(double x) { // halves away from zero
    double a = __builtin_fabs(x), t = __builtin_trunc(a);
    if (a - t >= 0.5) t += 1.0;
    return hw_copysign(t, x);
}
HW_FN float hw_roundf(float x) {
    float a = __builtin_fabsf(x), t = __builtin_truncf(a);
    if (a - t >= 0.5f) t += 1.0f;
    return hw_copysignf(t, x);
}

HW_FN double hw_pow2(int k) { return hw_bits<double>((hw_u64)(k + 1023) << 52); } // -1022 <= k <= 1023
HW_FN float hw_pow2f(int k) { return hw_bits<float>((unsigned)(k + 127) << 23); } // -126 <= k <= 127

HW_FN double hw_ldexp(double x, int k) {
#if HW_AMD
    return __builtin_amdgcn_ldexp(x, k);
#else
    k = k > 2200 ? 2200 : k < -2200 ? -2200 : k;
    for (; k > 1023; k -= 1023) x *= 0x1p1023;
    for (; k < -969; k += 969) x *= 0x1p-969; // leaves 53 bits above the subnormals for the last step
    return x * hw_pow2(k);
#endif
}
HW_FN float hw_ldexpf(float x, int k) {
#if HW_AMD
    return __builtin_amdgcn_ldexpf(x, k);
#else
    k = k > 600 ? 600 : k < -600 ? -600 : k;
    return (float)((double)x * hw_pow2(k)); // exact before the one rounding
#endif
}
HW_FN double hw_frexp(double x, int *e) {
    *e = 0;
    if (x == 0 || !hw_isfinite(x)) return x;
    int shift = 0;
    if (__builtin_fabs(x) < 0x1p-1022) x *= 0x1p54, shift = -54;
    hw_u64 u = hw_bits<hw_u64>(x);
    *e = (int)((u >> 52) & 0x7ff) - 1022 + shift;
    return hw_bits<double>((u & 0x800fffffffffffffULL) | 0x3fe0000000000000ULL);
}
HW_FN float hw_frexpf(float x, int *e) { return (float)hw_frexp((double)x, e); }

// ---------------------------------------------------------------- exponential and logarithm cores

// e^(hi + lo) for |hi| below about 745; error about 0.6 ulp.
HW_FN double hw_exp_dd(double hi, double lo) {
    double k = __builtin_rint(hi * HW_LOG2E);
    double r = __builtin_fma(-k, HW_LN2_HI, hi);
    hw_dd s = hw_two_sum(r, __builtin_fma(-k, HW_LN2_LO, lo));
    double p = s.hi + (s.lo + s.hi * s.hi * hw_p_exp(s.hi));
    return hw_ldexp(1.0 + p, (int)k);
}
// e^x - 1 = 2^k m + (2^k - 1), with m = e^r - 1 returned.
HW_FN double hw_expm1_core(double x, int *k) {
    double n = __builtin_rint(x * HW_LOG2E);
    double r = __builtin_fma(-n, HW_LN2_HI, x);
    double c = -n * HW_LN2_LO;
    hw_dd s = hw_two_sum(r, c);
    *k = (int)n;
    return s.hi + __builtin_fma(s.hi * s.hi, hw_p_exp(s.hi), s.lo);
}

// x = 2^k m with m in [sqrt(1/2), sqrt(2)), for positive finite x; subnormals included.
HW_FN double hw_split(double x, int *k) {
    int e = 0;
    if (x < 0x1p-1022) x *= 0x1p54, e = -54;
    hw_u64 u = hw_bits<hw_u64>(x) + (0x3ff0000000000000ULL - 0x3fe6a09e667f3bcdULL);
    *k = e + (int)(u >> 52) - 1023;
    return hw_bits<double>((u & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL);
}
// ln x with about 65 good bits, for positive finite x: 2 atanh(f / (2 + f)) in double-double.
HW_FN hw_dd hw_log_dd(double x) {
    int k;
    double f = hw_split(x, &k) - 1.0;
    hw_dd d = hw_fast_two_sum(2.0, f);
    double s = f / d.hi;
    double s_lo = (__builtin_fma(-s, d.hi, f) - s * d.lo) / d.hi;
    hw_dd z = hw_two_prod(s, s);
    z.lo = __builtin_fma(2.0 * s, s_lo, z.lo);
    hw_dd q = hw_two_prod(z.hi, 0x1.5555555555555p-1); // 2/3 s^2
    q.lo += z.hi * 0x1.5555555555555p-55 + z.lo * 0x1.5555555555555p-1 + z.hi * z.hi * hw_p_log_dd(z.hi);
    hw_dd t = hw_fast_two_sum(2.0, q.hi);
    t.lo += q.lo;
    hw_dd m = hw_two_prod(s, t.hi);
    m.lo += s * t.lo + s_lo * t.hi;
    hw_dd r = hw_two_sum(k * HW_LN2_HI, m.hi);
    return hw_fast_two_sum(r.hi, r.lo + (m.lo + k * HW_LN2_LO));
}
// ln x to about 2^-50 relative: for float functions that go through double.
HW_FN double hw_log_short(double x) {
    int k;
    double f = hw_split(x, &k) - 1.0, s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    return k * HW_LN2_HI + (f - (h - __builtin_fma(s, h + z * hw_p_log(z), k * HW_LN2_LO)));
}

// ---------------------------------------------------------------- reduction by pi/2

// Bits of 2/pi, most significant first, after 64 zero bits.
HW_FN hw_u64 hw_two_over_pi(int word) {
    static constexpr hw_u64 table[20] = {
        0x0000000000000000ULL, 0xa2f9836e4e441529ULL, 0xfc2757d1f534ddc0ULL, 0xdb6295993c439041ULL,
        0xfe5163abdebbc561ULL, 0xb7246e3a424dd2e0ULL, 0x06492eea09d1921cULL, 0xfe1deb1cb129a73eULL,
        0xe88235f52ebb4484ULL, 0xe99c7026b45f7e41ULL, 0x3991d639835339f4ULL, 0x9c845f8bbdf9283bULL,
        0x1ff897ffde05980fULL, 0xef2f118b5a0a6d1fULL, 0x6d367ecf27cb09b7ULL, 0x4f463f669e5fea2dULL,
        0x7527bac7ebe5f17bULL, 0x3d0739f78a5292eaULL, 0x6bfb5fb11f8d5d08ULL, 0x56033046fc7b6babULL};
    return table[word];
}
HW_FN hw_u64 hw_mulhi64(hw_u64 a, hw_u64 b) { return (hw_u64)(((unsigned __int128)a * b) >> 64); }
// 64 bits of 2/pi from bit `at` (counted from the top of the table).
HW_FN hw_u64 hw_two_over_pi_bits(int at) {
    int word = at >> 6, shift = at & 63;
    hw_u64 a = hw_two_over_pi(word), b = hw_two_over_pi(word + 1);
    return shift ? (a << shift) | (b >> (64 - shift)) : a;
}

// Payne and Hanek (1983): x = q pi/2 + r for finite |x| >= 1, any size. Returns q mod 4.
HW_FN int hw_reduce_huge(double x, hw_dd *r) {
    hw_u64 u = hw_bits<hw_u64>(x);
    hw_u64 m = (u & 0xfffffffffffffULL) | 0x10000000000000ULL;
    int at = (int)((u >> 52) & 0x7ff) - 1075 - 2 + 64; // |x| = m 2^e; the window starts at bit e - 2
    hw_u64 w0 = hw_two_over_pi_bits(at), w1 = hw_two_over_pi_bits(at + 64), w2 = hw_two_over_pi_bits(at + 128);
    hw_u64 p2 = m * w2, p1 = m * w1, p0 = m * w0, carry = hw_mulhi64(m, w2);
    p0 += hw_mulhi64(m, w1);
    p1 += carry;
    p0 += p1 < carry; // x * 2/pi / 4 mod 1, as a 192-bit fraction
    int q = (int)((p0 + (1ULL << 61)) >> 62) & 3;
    hw_i64 top = (hw_i64)(p0 << 2 | p1 >> 62); // the quarter turn's fraction as a signed number
    hw_u64 mid = p1 << 2 | p2 >> 62;
    hw_dd a = hw_two_sum((double)(int)(top >> 32) * 0x1p-32, (double)(unsigned)top * 0x1p-64);
    hw_dd b = hw_two_sum(a.hi, (double)mid * 0x1p-128);
    b = hw_fast_two_sum(b.hi, b.lo + a.lo);
    hw_dd p = hw_two_prod(b.hi, HW_PIO2_HI);
    p = hw_fast_two_sum(p.hi, p.lo + b.hi * HW_PIO2_LO + b.lo * HW_PIO2_HI);
    bool negative = u >> 63;
    *r = negative ? hw_dd{-p.hi, -p.lo} : p;
    return negative ? (4 - q) & 3 : q;
}
// x = q pi/2 + r with |r| <= pi/4 (a little more near the ends); Cody and Waite (1980) below 1e5.
HW_FN int hw_reduce(double x, hw_dd *r) {
    if (__builtin_fabs(x) > 1e5) return hw_reduce_huge(x, r);
    double n = __builtin_rint(x * 0x1.45f306dc9c883p-1);
    double a = __builtin_fma(-n, HW_PIO2_HI, x); // exact
    hw_dd p = hw_two_prod(n, HW_PIO2_LO);
    hw_dd s = hw_two_sum(a, -p.hi);
    *r = hw_fast_two_sum(s.hi, s.lo - p.lo + n * 0x1.f1976b7ed8fbcp-110);
    return (int)n & 3;
}
// The same for float, |x| < 2^17 by three parts of pi/2, else by 128 bits of 2/pi.
HW_FN int hw_reducef(float x, float *r) {
    if (__builtin_fabsf(x) < 131072.0f) {
        float n = __builtin_rintf(x * 0x1.45f306p-1f);
        float a = __builtin_fmaf(-n, 0x1.921fb6p+0f, x);
        a = __builtin_fmaf(n, 0x1.777a5cp-25f, a);
        *r = __builtin_fmaf(n, 0x1.ee59dap-50f, a);
        return (int)n & 3;
    }
    unsigned u = hw_bits<unsigned>(x);
    hw_u64 m = (u & 0x7fffff) | 0x800000;
    int at = (int)((u >> 23) & 0xff) - 150 - 2 + 64;
    hw_u64 p = m * hw_two_over_pi_bits(at) + hw_mulhi64(m, hw_two_over_pi_bits(at + 64));
    int q = (int)((p + (1ULL << 61)) >> 62) & 3;
    float f = (float)((double)(hw_i64)(p << 2) * (0x1p-64 * HW_PIO2_HI));
    bool negative = u >> 31;
    *r = negative ? -f : f;
    return negative ? (4 - q) & 3 : q;
}
#pragma STDC FP_CONTRACT DEFAULT
