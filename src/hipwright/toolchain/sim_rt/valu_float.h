// Vector instructions on float32 and float64.
#pragma once
#include "undefined.h"

INLINE V pick(V mask, V yes, V no) { return (yes & mask) | (no & ~mask); }
INLINE VF pick(V mask, VF yes, VF no) { return (VF)pick(mask, (V)yes, (V)no); }
INLINE VF fma8(VF a, VF b, VF c) { return __builtin_elementwise_fma(a, b, c); }
INLINE VF nothing_small(VF x) { // denormals become zeros of their sign
    return pick((V)(((V)x & 0x7f800000) == 0), (VF)((V)x & 0x80000000), x);
}
INLINE V quiet(VF x, V is_nan) { return is_nan & (V)(((V)x & 0x400000) == 0); } // the signalling ones
INLINE VF max8(VF a, VF b) {
    V an = (V)(a != a), bn = (V)(b != b), equal = (V)(a == b);
    VF r = pick((V)(a > b) | bn, a, b);
    r = pick(equal, (VF)((V)a & (V)b), r);
    r = pick(quiet(a, an), (VF)((V)a | 0x400000), r);
    return pick(quiet(b, bn), (VF)((V)b | 0x400000), r);
}
INLINE VF min8(VF a, VF b) {
    V an = (V)(a != a), bn = (V)(b != b), equal = (V)(a == b);
    VF r = pick((V)(a < b) | bn, a, b);
    r = pick(equal, (VF)((V)a | (V)b), r);
    r = pick(quiet(a, an), (VF)((V)a | 0x400000), r);
    return pick(quiet(b, bn), (VF)((V)b | 0x400000), r);
}
INLINE VF med8(VF a, VF b, VF c) {
    VF least = min8(min8(a, b), c), most = max8(max8(a, b), c);
    V nan = (V)(a != a) | (V)(b != b) | (V)(c != c), at_a = (V)(most == a), at_b = (V)(most == b);
    return pick(nan, least, pick(at_a, max8(b, c), pick(at_b, max8(a, c), max8(a, b))));
}
// 2^x in float64, rounded once; the hardware's is within one ulp of it.
INLINE VF exp2_8(VF x) {
    x = nothing_small(x);
    V low = (V)(x < -150.f), high = (V)(x >= 128.f), nan = (V)(x != x);
    VF safe = pick(low | high | nan, (VF)broadcast(0), x), whole = __builtin_elementwise_roundeven(safe);
    QF f = __builtin_convertvector(safe - whole, QF) * 0.69314718055994530942;
    QF r = f * (1.0 / 479001600) + 1.0 / 39916800;
    const double terms[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    for (int i = 0; i < 11; i++) r = r * f + terms[i];
    QI power = (__builtin_convertvector(__builtin_convertvector(whole, VI), QI) + 1023) << 52;
    VF y = nothing_small(__builtin_convertvector(r * (QF)power, VF));
    y = pick(low, (VF)broadcast(0), pick(high, (VF)broadcast(0x7f800000), y));
    return pick(nan, x, y);
}
template <class F> INLINE VF each(VF x, F f) {
    VF y;
    for (int i = 0; i < 8; i++) y[i] = f(x[i]);
    return y;
}
INLINE VF log2_8(VF x) { return each(nothing_small(x), [](float v) { return (float)log2((double)v); }); }
INLINE VF rsq_8(VF x) {
    QF d = __builtin_convertvector(nothing_small(x), QF);
    return __builtin_convertvector(1.0 / __builtin_elementwise_sqrt(d), VF);
}
INLINE VF sqrt_8(VF x) { return __builtin_elementwise_sqrt(nothing_small(x)); }
INLINE VF fract_8(VF x) {
    VF r = x - __builtin_elementwise_floor(x);
    return pick((V)(r >= 1.f), (VF)broadcast(0x3f7fffff), r);
}
INLINE VF ldexp_8(VF x, V e) {
    VI n = (VI)e;
    n = (VI)pick((V)(n > 300), broadcast(300), pick((V)(n < -300), broadcast((u32)-300), (V)n));
    QI power = (__builtin_convertvector(n, QI) + 1023) << 52;
    return __builtin_convertvector(__builtin_convertvector(x, QF) * (QF)power, VF);
}
static float frexp_mant(float x) { int e; return isinf(x) || isnan(x) ? x : frexpf(x, &e); }
static float turns_sin(float x) { return fabsf(x) > 512.f * 1024 ? 0.f : (float)sin(6.28318530717958647692 * (double)x); }
static float turns_cos(float x) { return fabsf(x) > 512.f * 1024 ? 1.f : (float)cos(6.28318530717958647692 * (double)x); }

#define F32_1(name, expr) OP(name) { begin(w); const V *p = lanes_f32(w, o, 0, 0); \
    write_f32(w, o, [&](u32 i) { VF a = (VF)p[i]; return expr; }, o.dst[0].reg); }
#define F32_2(name, expr) OP(name) { begin(w); const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1); \
    write_f32(w, o, [&](u32 i) { VF a = (VF)p[i], b = (VF)q[i]; return expr; }, o.dst[0].reg); }
#define F32_3(name, expr) OP(name) { begin(w); \
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1), *r = lanes_f32(w, o, 2, 2); \
    write_f32(w, o, [&](u32 i) { VF a = (VF)p[i], b = (VF)q[i], c = (VF)r[i]; return expr; }, o.dst[0].reg); }
F32_2(v_add_f32, a + b)
F32_2(v_sub_f32, a - b)
F32_2(v_subrev_f32, b - a)
F32_2(v_mul_f32, a * b)
F32_2(v_mul_legacy_f32, pick((V)(a == 0.f) | (V)(b == 0.f), (VF)broadcast(0), a * b))
F32_2(v_max_f32, max8(a, b))
F32_2(v_min_f32, min8(a, b))
F32_3(v_fma_f32, fma8(a, b, c))
F32_3(v_fmac_f32, fma8(a, b, c))
F32_3(v_fmaak_f32, fma8(a, b, c))
F32_3(v_fmamk_f32, fma8(a, b, c))
F32_3(v_mad_f32, a * b + c)
F32_3(v_mac_f32, a * b + c)
F32_3(v_max3_f32, max8(max8(a, b), c))
F32_3(v_min3_f32, min8(min8(a, b), c))
F32_3(v_maxmin_f32, min8(max8(a, b), c))
F32_3(v_minmax_f32, max8(min8(a, b), c))
F32_3(v_med3_f32, med8(a, b, c))
F32_1(v_exp_f32, exp2_8(a))
F32_1(v_log_f32, log2_8(a))
F32_1(v_rcp_f32, 1.f / a)
F32_1(v_rcp_iflag_f32, 1.f / a)
F32_1(v_rsq_f32, rsq_8(a))
F32_1(v_sqrt_f32, sqrt_8(a))
F32_1(v_sin_f32, each(a, turns_sin))
F32_1(v_cos_f32, each(a, turns_cos))
F32_1(v_trunc_f32, __builtin_elementwise_trunc(a))
F32_1(v_floor_f32, __builtin_elementwise_floor(a))
F32_1(v_ceil_f32, __builtin_elementwise_ceil(a))
F32_1(v_rndne_f32, __builtin_elementwise_roundeven(a))
F32_1(v_fract_f32, fract_8(a))
F32_1(v_frexp_mant_f32, each(a, frexp_mant))
OP(v_ldexp_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    write_f32(w, o, [&](u32 i) { return ldexp_8((VF)p[i], q[i]); }, o.dst[0].reg);
}
OP(v_frexp_exp_i32_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0);
    write_u32(w, o, [&](u32 i) {
        V r;
        for (int l = 0; l < 8; l++) { int e = 0; float x = ((VF)p[i])[l]; if (!isinf(x) && !isnan(x)) frexpf(x, &e); r[l] = (u32)e; }
        return r;
    }, o.dst[0].reg);
}

// ---------------------------------------------------------------- division

static int exponent32(float x) { u32 u; memcpy(&u, &x, 4); return (u >> 23) & 255; }
static int exponent64(double x) { u64 u; memcpy(&u, &x, 8); return (u >> 52) & 2047; }
static bool denormal(float x) { return x != 0 && exponent32(x) == 0; }
static bool denormal(double x) { return x != 0 && exponent64(x) == 0; }
static int exponent_of(float x) { return exponent32(x); }
static int exponent_of(double x) { return exponent64(x); }
// V_DIV_SCALE: x is the denominator or the numerator, scaled so that Newton's steps meet no denormal; `post` is VCC.
template <class T> static T div_scale(T x, T den, T num, bool *post) {
    const int apart = sizeof(T) == 4 ? 96 : 768, up = sizeof(T) == 4 ? 64 : 128, tiny = sizeof(T) == 4 ? 23 : 52;
    *post = false;
    if (num == 0 || den == 0) return (T)NAN;
    if (exponent_of(num) - exponent_of(den) >= apart) {
        *post = true;
        return x == den ? (T)ldexp((double)x, up) : x;
    }
    if (denormal(den)) return (T)ldexp((double)x, up);
    bool tiny_inverse = denormal(1.0 / (double)den); // in float64, so never of a float32
    if (tiny_inverse && denormal(num / den)) { // the documents scale up, which overflows: only down makes the sequence right
        *post = true;
        return x == den ? (T)ldexp((double)x, -up) : x;
    }
    if (tiny_inverse) return (T)ldexp((double)x, -up);
    if (denormal(num / den)) {
        *post = true;
        return x == num ? (T)ldexp((double)x, up) : x;
    }
    if (exponent_of(num) <= tiny) return (T)ldexp((double)x, up);
    return x;
}
template <class T> static T div_fixup(T q, T den, T num) {
    bool negative = signbit(den) != signbit(num);
    if (isnan(num)) return num;
    if (isnan(den)) return den;
    if ((den == 0 && num == 0) || (isinf(den) && isinf(num))) return -(T)NAN;
    if (den == 0 || isinf(num)) return negative ? -(T)INFINITY : (T)INFINITY;
    if (isinf(den) || num == 0) return negative ? -(T)0 : (T)0;
    if (exponent_of(num) - exponent_of(den) < (sizeof(T) == 4 ? -150 : -1075)) return negative ? -(T)0 : (T)0; // underflow
    q = isnan(q) ? (T)INFINITY : (T)fabs((double)q);
    return negative ? -q : q;
}
OP(v_div_scale_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1), *r = lanes_f32(w, o, 2, 2);
    V out[8];
    u64 post = 0;
    for (u32 l = 0; l < w.lanes; l++) {
        bool after;
        float x = div_scale(((const float *)p)[l], ((const float *)q)[l], ((const float *)r)[l], &after);
        memcpy((char *)out + 4 * l, &x, 4);
        post |= (u64)after << l;
    }
    u64 unclear = w.undefined & w.active;
    put(w, o, out, o.dst[0].reg);
    if (o.dst[1].kind == SGPR) put_lanes(w, o, o.dst[1].reg, post & w.active, unclear);
}
OP(v_div_fmas_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1), *r = lanes_f32(w, o, 2, 2);
    u64 post = lanes_of(w, o, VCC);
    write_f32(w, o, [&](u32 i) { // sum and scale are rounded once
        VF x = fma8((VF)p[i], (VF)q[i], (VF)r[i]);
        QF wide = __builtin_elementwise_fma(__builtin_convertvector((VF)p[i], QF), __builtin_convertvector((VF)q[i], QF), __builtin_convertvector((VF)r[i], QF));
        V large = (V)((((V)r[i] >> 23) & 255) > 127);
        VF scaled = pick(large, __builtin_convertvector(wide * 0x1p64, VF), __builtin_convertvector(wide * 0x1p-64, VF));
        return pick(expand((post >> (8 * i)) & 255), scaled, x);
    }, o.dst[0].reg);
}
OP(v_div_fixup_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1), *r = lanes_f32(w, o, 2, 2);
    write_f32(w, o, [&](u32 i) {
        VF x;
        for (int l = 0; l < 8; l++) x[l] = div_fixup(((VF)p[i])[l], ((VF)q[i])[l], ((VF)r[i])[l]);
        return x;
    }, o.dst[0].reg);
}

// ---------------------------------------------------------------- two float32 at a time

// The rows that the low and the high result read.
struct Halves { const V *lo, *hi; u64 low, high; };
INLINE Halves packed32(Wave &w, const Op &o, int k) {
    const Src &s = o.src[k];
    Halves h;
    u32 first = (o.op_sel >> k) & 1, second = (o.op_sel_hi >> k) & 1;
    u32 nlo = (o.neg_lo >> k) & 1, nhi = (o.neg_hi >> k) & 1;
    if (s.kind == VGPR && !(nlo | nhi)) {
        use_v(w, o, s.reg + first);
        use_v(w, o, s.reg + second);
        return {w.v[s.reg + first].c, w.v[s.reg + second].c, ~w.v_defined[s.reg + first], ~w.v_defined[s.reg + second]};
    }
    h.low = s.kind == VGPR ? ~w.v_defined[s.reg + first] : s.kind == SGPR && !w.s_defined[s.reg + first] ? ~0ull : 0;
    h.high = s.kind == VGPR ? ~w.v_defined[s.reg + second] : s.kind == SGPR && !w.s_defined[s.reg + second] ? ~0ull : 0;
    h.lo = lanes32(w, o, k, 2 * k, s.kind == LITERAL ? 0 : first);
    h.hi = lanes32(w, o, k, 2 * k + 1, s.kind == LITERAL ? 0 : second);
    if (nlo) { for (int c = 0; c < 8; c++) w.t[2 * k].c[c] = h.lo[c] ^ 0x80000000u; h.lo = w.t[2 * k].c; }
    if (nhi) { for (int c = 0; c < 8; c++) w.t[2 * k + 1].c[c] = h.hi[c] ^ 0x80000000u; h.hi = w.t[2 * k + 1].c; }
    return h;
}
INLINE void put_two(Wave &w, const Op &o, V *lo, V *hi, u64 low, u64 high) { // each half has its own undefined lanes
    if (o.clamp) { scale_f32(o, lo); scale_f32(o, hi); }
    w.undefined = low | w.s_lanes[EXEC];
    put(w, o, lo, o.dst[0].reg);
    w.undefined = high | w.s_lanes[EXEC];
    put(w, o, hi, o.dst[0].reg + 1);
}
#define PK_2(name, expr) OP(name) { begin(w); Halves p = packed32(w, o, 0), q = packed32(w, o, 1); V lo[8], hi[8]; \
    for (u32 i = 0; i < w.chunks; i++) { VF a = (VF)p.lo[i], b = (VF)q.lo[i]; lo[i] = (V)(expr); } \
    for (u32 i = 0; i < w.chunks; i++) { VF a = (VF)p.hi[i], b = (VF)q.hi[i]; hi[i] = (V)(expr); } \
    put_two(w, o, lo, hi, p.low | q.low, p.high | q.high); }
PK_2(v_pk_add_f32, a + b)
PK_2(v_pk_mul_f32, a * b)
OP(v_pk_fma_f32) {
    begin(w);
    Halves p = packed32(w, o, 0), q = packed32(w, o, 1), r = packed32(w, o, 2);
    V lo[8], hi[8];
    for (u32 i = 0; i < w.chunks; i++) {
        lo[i] = (V)fma8((VF)p.lo[i], (VF)q.lo[i], (VF)r.lo[i]);
        hi[i] = (V)fma8((VF)p.hi[i], (VF)q.hi[i], (VF)r.hi[i]);
    }
    put_two(w, o, lo, hi, p.low | q.low | r.low, p.high | q.high | r.high);
}
OP(v_pk_mov_b32) { // the low result from the first source, the high one from the second
    begin(w);
    u32 first = o.op_sel & 1, second = (o.op_sel >> 1) & 1; // op_sel of the second chooses for the high result
    u32 m = o.src[0].kind == LITERAL ? 0 : first, n = o.src[1].kind == LITERAL ? 0 : second;
    const V *p = lanes32(w, o, 0, 0, m), *q = lanes32(w, o, 1, 1, n);
    V lo[8], hi[8];
    for (u32 i = 0; i < w.chunks; i++) { lo[i] = p[i]; hi[i] = q[i]; }
    if (!any_undefined(w)) return put_two(w, o, lo, hi, 0, 0);
    Row a, b;
    undefined_bits(w, o, 0, a, m);
    undefined_bits(w, o, 1, b, n);
    put_bits(w, o, lo, a, o.dst[0].reg);
    put_bits(w, o, hi, b, o.dst[0].reg + 1);
}

// ---------------------------------------------------------------- float64

INLINE void put_f64(Wave &w, const Op &o, Q *r) {
    if (o.omod | o.clamp) scale_f64(o, r);
    put_q(w, o, r);
}
INLINE QF max_q(QF a, QF b) {
    QF r;
    for (int i = 0; i < 8; i++) r[i] = a[i] == 0 && b[i] == 0 ? (signbit(a[i]) ? b[i] : a[i]) : fmax(a[i], b[i]);
    return r;
}
INLINE QF min_q(QF a, QF b) {
    QF r;
    for (int i = 0; i < 8; i++) r[i] = a[i] == 0 && b[i] == 0 ? (signbit(a[i]) ? a[i] : b[i]) : fmin(a[i], b[i]);
    return r;
}
template <class F> INLINE QF each(QF x, F f) {
    QF y;
    for (int i = 0; i < 8; i++) y[i] = f(x[i]);
    return y;
}
static double frexp_mant64(double x) { int e; return isinf(x) || isnan(x) ? x : frexp(x, &e); }
static double fract64(double x) { double r = x - floor(x); return r >= 1 ? 0x1.fffffffffffffp-1 : r; }
#define F64_1(name, expr) OP(name) { begin(w); Q p[8]; lanes_f64(w, o, 0, p); \
    for (u32 i = 0; i < w.chunks; i++) { QF a = (QF)p[i]; p[i] = (Q)(expr); } put_f64(w, o, p); }
#define F64_2(name, expr) OP(name) { begin(w); Q p[8], q[8]; lanes_f64(w, o, 0, p); lanes_f64(w, o, 1, q); \
    for (u32 i = 0; i < w.chunks; i++) { QF a = (QF)p[i], b = (QF)q[i]; p[i] = (Q)(expr); } put_f64(w, o, p); }
#define F64_3(name, expr) OP(name) { begin(w); Q p[8], q[8], r[8]; lanes_f64(w, o, 0, p); lanes_f64(w, o, 1, q); lanes_f64(w, o, 2, r); \
    for (u32 i = 0; i < w.chunks; i++) { QF a = (QF)p[i], b = (QF)q[i], c = (QF)r[i]; p[i] = (Q)(expr); } put_f64(w, o, p); }
F64_2(v_add_f64, a + b)
F64_2(v_mul_f64, a * b)
F64_2(v_max_f64, max_q(a, b))
F64_2(v_min_f64, min_q(a, b))
F64_3(v_fma_f64, __builtin_elementwise_fma(a, b, c))
F64_3(v_fmac_f64, __builtin_elementwise_fma(a, b, c))
F64_1(v_rcp_f64, 1.0 / a)
F64_1(v_rsq_f64, 1.0 / __builtin_elementwise_sqrt(a))
F64_1(v_sqrt_f64, __builtin_elementwise_sqrt(a))
F64_1(v_trunc_f64, __builtin_elementwise_trunc(a))
F64_1(v_floor_f64, __builtin_elementwise_floor(a))
F64_1(v_ceil_f64, __builtin_elementwise_ceil(a))
F64_1(v_rndne_f64, __builtin_elementwise_roundeven(a))
F64_1(v_fract_f64, each(a, fract64))
F64_1(v_frexp_mant_f64, each(a, frexp_mant64))
OP(v_ldexp_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    const V *q = lanes32(w, o, 1, 1);
    for (u32 l = 0; l < w.lanes; l++) {
        double x;
        memcpy(&x, (char *)p + 8 * l, 8);
        x = ldexp(x, ((const i32 *)q)[l]);
        memcpy((char *)p + 8 * l, &x, 8);
    }
    put_f64(w, o, p);
}
OP(v_frexp_exp_i32_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    write_u32(w, o, [&](u32 i) {
        V r;
        for (int l = 0; l < 8; l++) { int e = 0; double x = ((QF)p[i])[l]; if (!isinf(x) && !isnan(x)) frexp(x, &e); r[l] = (u32)e; }
        return r;
    }, o.dst[0].reg);
}
OP(v_div_scale_f64) {
    begin(w);
    Q p[8], q[8], r[8];
    lanes_f64(w, o, 0, p); lanes_f64(w, o, 1, q); lanes_f64(w, o, 2, r);
    u64 post = 0;
    for (u32 l = 0; l < w.lanes; l++) {
        bool after;
        double x = div_scale(((double *)p)[l], ((double *)q)[l], ((double *)r)[l], &after);
        memcpy((char *)p + 8 * l, &x, 8);
        post |= (u64)after << l;
    }
    u64 unclear = w.undefined & w.active;
    put_q(w, o, p);
    if (o.dst[1].kind == SGPR) put_lanes(w, o, o.dst[1].reg, post & w.active, unclear);
}
OP(v_div_fmas_f64) {
    begin(w);
    Q p[8], q[8], r[8];
    lanes_f64(w, o, 0, p); lanes_f64(w, o, 1, q); lanes_f64(w, o, 2, r);
    u64 post = lanes_of(w, o, VCC);
    for (u32 l = 0; l < w.lanes; l++) {
        double a = ((double *)p)[l], b = ((double *)q)[l], c = ((double *)r)[l], x;
        if ((post >> l) & 1) { // sum and scale are rounded once: the larger factor is scaled, which is exact
            double scale = exponent64(c) > 1023 ? 0x1p128 : 0x1p-128;
            bool first = (exponent64(a) > exponent64(b)) == (scale < 1);
            x = first ? fma(a * scale, b, c * scale) : fma(a, b * scale, c * scale);
        } else x = fma(a, b, c);
        memcpy((char *)p + 8 * l, &x, 8);
    }
    put_q(w, o, p);
}
OP(v_div_fixup_f64) {
    begin(w);
    Q p[8], q[8], r[8];
    lanes_f64(w, o, 0, p); lanes_f64(w, o, 1, q); lanes_f64(w, o, 2, r);
    for (u32 l = 0; l < w.lanes; l++) {
        double x = div_fixup(((double *)p)[l], ((double *)q)[l], ((double *)r)[l]);
        memcpy((char *)p + 8 * l, &x, 8);
    }
    put_q(w, o, p);
}
