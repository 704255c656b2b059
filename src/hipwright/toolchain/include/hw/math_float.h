// Device math in float. The functions that activations use stay in float; the rare ones go through double and are
// therefore right to about half an ulp. On AMD, LLVM's own expansions of exp and log serve (they are within 1 ulp).
#pragma once
#include "math_special.h"
#pragma STDC FP_CONTRACT OFF

#define HW_INFF __builtin_inff()

HW_FN float hw_sqrtf(float x) { return __builtin_sqrtf(x); }
HW_FN float hw_rsqrtf(float x) {
#if HW_AMD
    bool small = x < 0x1p-100f; // v_rsq_f32 flushes subnormals
    float r = __builtin_amdgcn_rsqf(small ? x * 0x1p24f : x);
    return small ? r * 0x1p12f : r;
#else
    return (float)(1.0 / __builtin_sqrt((double)x));
#endif
}
HW_FN float hw_fast_rcpf(float x) { // 1 ulp; for x that is neither tiny nor huge
#if HW_AMD
    return __builtin_amdgcn_rcpf(x);
#else
    return 1.0f / x;
#endif
}

// ---------------------------------------------------------------- exponentials and logarithms

#if HW_AMD
HW_FN float hw_expf(float x) { return __builtin_expf(x); }
HW_FN float hw_exp2f(float x) { return __builtin_exp2f(x); }
HW_FN float hw_exp10f(float x) { return __builtin_exp10f(x); }
HW_FN float hw_logf(float x) { return __builtin_logf(x); }
HW_FN float hw_log2f(float x) { return __builtin_log2f(x); }
HW_FN float hw_log10f(float x) { return __builtin_log10f(x); }
#else
HW_FN float hw_expf(float x) {
    if (x != x) return x;
    if (x > 88.73f) return HW_INFF;
    if (x < -104.0f) return 0.0f;
    float k = __builtin_rintf(x * 0x1.715476p+0f);
    float r = __builtin_fmaf(-k, 0x1.62e4p-1f, x), lo = -k * 0x1.7f7d1cp-20f, s = r + lo;
    float tail = (r - s) + lo;
    return hw_ldexpf(1.0f + (s + __builtin_fmaf(s * s, hw_p_expf(s), tail)), (int)k);
}
HW_FN float hw_exp2f(float x) { return (float)hw_exp2((double)x); }
HW_FN float hw_exp10f(float x) { return (float)hw_exp10((double)x); }
HW_FN float hw_logf(float x) {
    if (!(x > 0.0f && x < HW_INFF)) return x == 0.0f ? -HW_INFF : x < 0.0f ? __builtin_nanf("") : x;
    int e = 0;
    if (x < 0x1p-126f) x *= 0x1p24f, e = -24;
    unsigned u = hw_bits<unsigned>(x) + (0x3f800000u - 0x3f3504f3u);
    float k = (float)(e + (int)(u >> 23) - 127);
    float f = hw_bits<float>((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f, s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
    return k * 0x1.62e4p-1f + (f - (h - __builtin_fmaf(s, h + z * hw_p_logf(z), k * 0x1.7f7d1cp-20f)));
}
HW_FN float hw_log2f(float x) { return (float)hw_log2((double)x); }
HW_FN float hw_log10f(float x) { return (float)hw_log10((double)x); }
#endif
HW_FN float hw_expm1f(float x) {
    if (x != x || x == 0.0f) return x;
    if (x > 88.73f) return HW_INFF;
    if (x < -18.0f) return -1.0f;
    float k = __builtin_rintf(x * 0x1.715476p+0f);
    float r = __builtin_fmaf(-k, 0x1.62e4p-1f, x), lo = -k * 0x1.7f7d1cp-20f, s = r + lo;
    float m = s + __builtin_fmaf(s * s, hw_p_expf(s), (r - s) + lo);
    if (k == 128.0f) return (m + 1.0f) * 0x1p127f * 2.0f;
    float scale = hw_pow2f((int)k);
    return __builtin_fmaf(scale, m, scale - 1.0f);
}
HW_FN float hw_log1pf(float x) { // ln(u) + c / u with u + c = 1 + x exactly
    if (x == HW_INFF || !(x > -1.0f)) return x == -1.0f ? -HW_INFF : x < -1.0f ? __builtin_nanf("") : x;
    float u = 1.0f + x, c = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    if (u == 1.0f) return x;
    return hw_logf(u) + c * hw_fast_rcpf(u);
}
HW_FN float hw_powf(float x, float y) {
    double edge;
    if (hw_pow_edge((double)x, (double)y, &edge)) return (float)edge;
    double p = (double)y * hw_log_short((double)__builtin_fabsf(x));
    float r = p > 89.0 ? HW_INFF : p < -104.0 ? 0.0f : (float)hw_exp_dd(p, 0.0);
    return x < 0.0f && hw_parity((double)y) == 1 ? -r : r;
}
HW_FN float hw_cbrtf(float x) { return (float)hw_cbrt((double)x); }
HW_FN float hw_hypotf(float x, float y) {
    if (__builtin_isinf(x) || __builtin_isinf(y)) return HW_INFF;
    return (float)__builtin_sqrt((double)x * x + (double)y * y); // no overflow in double
}

// ---------------------------------------------------------------- circular functions

HW_FN float hw_sin_kernelf(float r) {
    float z = r * r;
    return __builtin_fmaf(z * r, hw_p_sinf(z), r);
}
HW_FN float hw_cos_kernelf(float r) {
    float z = r * r;
    return __builtin_fmaf(z * z, hw_p_cosf(z), __builtin_fmaf(-0.5f, z, 1.0f));
}
HW_FN float hw_quadrant_sinf(int q, float r) {
    float v = (q & 1) ? hw_cos_kernelf(r) : hw_sin_kernelf(r);
    return (q & 2) ? -v : v;
}
HW_FN float hw_sinf(float x) {
    if (!(__builtin_fabsf(x) < HW_INFF)) return __builtin_nanf("");
    float r;
    int q = hw_reducef(x, &r);
    return x == 0.0f ? x : hw_quadrant_sinf(q, r);
}
HW_FN float hw_cosf(float x) {
    if (!(__builtin_fabsf(x) < HW_INFF)) return __builtin_nanf("");
    float r;
    int q = hw_reducef(x, &r);
    return hw_quadrant_sinf(q + 1, r);
}
HW_FN float hw_tanf(float x) {
    if (!(__builtin_fabsf(x) < HW_INFF)) return __builtin_nanf("");
    float r;
    int q = hw_reducef(x, &r);
    float s = hw_sin_kernelf(r), c = hw_cos_kernelf(r);
    return x == 0.0f ? x : (q & 1) ? -c / s : s / c;
}
HW_FN float hw_sinpif(float x) { return (float)hw_sinpi((double)x); }
HW_FN float hw_cospif(float x) { return (float)hw_cospi((double)x); }
HW_FN float hw_asinf(float x) { return (float)hw_asin((double)x); }
HW_FN float hw_acosf(float x) { return (float)hw_acos((double)x); }
HW_FN float hw_atanf(float x) {
    if (x != x) return x;
    float a = __builtin_fabsf(x), t = a > 1.0f ? 1.0f / a : a, z = t * t;
    float v = __builtin_fmaf(t * z, hw_p_atanf(z), t);
    if (a > 1.0f) v = 0x1.921fb6p+0f - (v + 0x1.777a5cp-25f);
    return hw_copysignf(v, x);
}
HW_FN float hw_atan2f(float y, float x) { return (float)hw_atan2((double)y, (double)x); }

// ---------------------------------------------------------------- hyperbolic functions

HW_FN float hw_tanhf(float x) {
    float a = __builtin_fabsf(x);
    if (a < 0.625f) return hw_copysignf(__builtin_fmaf(a * (a * a), hw_p_tanhf(a * a), a), x);
    float e = hw_expf(2.0f * (a < 20.0f ? a : 20.0f));
    float v = 1.0f - 2.0f * hw_fast_rcpf(1.0f + e);
    return x != x ? x : hw_copysignf(v, x);
}
HW_FN float hw_sinhf(float x) { return (float)hw_sinh((double)x); }
HW_FN float hw_coshf(float x) { return (float)hw_cosh((double)x); }
HW_FN float hw_asinhf(float x) { return (float)hw_asinh((double)x); }
HW_FN float hw_acoshf(float x) { return (float)hw_acosh((double)x); }
HW_FN float hw_atanhf(float x) { return (float)hw_atanh((double)x); }

// ---------------------------------------------------------------- error and gamma functions

HW_FN float hw_erff(float x) { // beyond 1, as 1 - exp(polynomial)
    float a = __builtin_fabsf(x);
    if (a < 1.0f) return __builtin_fmaf(x, hw_p_erff(x * x), x);
    float v = 1.0f - hw_expf(hw_p_erf_tailf(a < 4.0f ? a : 4.0f));
    return x != x ? x : hw_copysignf(v, x);
}
HW_FN float hw_erfcf(float x) { return (float)hw_erfc((double)x); }
HW_FN float hw_erfcxf(float x) { return (float)hw_erfcx((double)x); }
HW_FN float hw_normcdff(float x) { return (float)hw_normcdf((double)x); }
HW_FN float hw_erfinvf(float x) { // in Giles's variable, the coefficients are our own
    float a = __builtin_fabsf(x);
    if (!(a < 1.0f)) return a == 1.0f ? x * HW_INFF : __builtin_nanf("");
    float w = a < 0.5f ? -hw_log1pf(-x * x) : -hw_logf((1.0f - a) * (1.0f + a)); // 1 - a is exact from 0.5 on
    return x * (w < 5.0f ? hw_p_erfinvf(w - 2.5f) : hw_p_erfinv_tailf(__builtin_sqrtf(w) - 3.0f));
}
HW_FN float hw_lgammaf(float x) { return (float)hw_lgamma((double)x); }
HW_FN float hw_tgammaf(float x) { return (float)hw_tgamma((double)x); }
#pragma STDC FP_CONTRACT DEFAULT
