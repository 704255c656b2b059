// Vector instructions on float16 and 16-bit integers, alone, packed, and mixed with float32.
#pragma once
#include "valu_int.h"

INLINE VF widen(V x) { // the low halves as float32
    H h = __builtin_convertvector(x & 0xffff, H);
    return __builtin_convertvector((HF)h, VF);
}
INLINE V narrow(VF x) { return __builtin_convertvector((H)__builtin_convertvector(x, HF), V); }
INLINE V narrow(QF x) { // one rounding, from float64: to float32 towards zero with the lost bits in the last one
    VF f = __builtin_convertvector(x, VF);
    QF back = __builtin_convertvector(f, QF);
    V exact = __builtin_convertvector((Q)((back == x) | (x != x)), V);
    V above = __builtin_convertvector((Q)(__builtin_elementwise_abs(back) > __builtin_elementwise_abs(x)), V);
    V odd = ((V)f - (above & 1)) | 1;
    return narrow(pick(exact, f, (VF)odd));
}
INLINE QF wide64(V x) { return __builtin_convertvector(widen(x), QF); }
INLINE V clamp16(V h) {
    VF x = widen(h), one = (VF)broadcast(0x3f800000);
    x = pick((V)(x > one), one, x);
    return narrow((VF)((V)x & (V)(x > 0.f)));
}
// A 16-bit result: the other half of the register becomes 0 on gfx9, and stays where op_sel names a half.
INLINE u32 kept_half(const Op &o) { return (o.op_sel >> 3) & 1 ? 0xffffu : o.flags & 1 ? 0xffff0000u : 0; }
INLINE void place_16(Wave &w, const Op &o, V *r, u32 reg) {
    if ((o.op_sel >> 3) & 1) for (u32 c = 0; c < w.chunks; c++) r[c] = (r[c] << 16) | (w.v[reg].c[c] & 0xffff);
    else if (o.flags & 1) for (u32 c = 0; c < w.chunks; c++) r[c] |= w.v[reg].c[c] & 0xffff0000;
}
template <bool FLOAT = true, class F> INLINE void write_16(Wave &w, const Op &o, F f) {
    V r[8];
    for (u32 c = 0; c < w.chunks; c++) r[c] = (V)f(c) & 0xffff;
    if (FLOAT && o.clamp) for (u32 c = 0; c < w.chunks; c++) r[c] = clamp16(r[c]);
    u32 reg = o.dst[0].reg, kept = kept_half(o);
    place_16(w, o, r, reg);
    if (__builtin_expect(((w.undefined | (kept ? ~w.v_defined[reg] : 0)) & w.active) != 0, 0)) // only the undefined half of a register is
        return put_beside(w, o, r, reg, (o.op_sel >> 3) & 1 ? 0xffff0000u : 0xffffu, kept);
    put(w, o, r, reg);
}
#define F16_1(name, expr) OP(name) { begin(w); const V *p = lanes_f16(w, o, 0, 0); reads_halves(w, o, 1); \
    write_16(w, o, [&](u32 i) { VF a = widen(p[i]); return narrow(expr); }); }
#define F16_2(name, expr) OP(name) { begin(w); const V *p = lanes_f16(w, o, 0, 0), *q = lanes_f16(w, o, 1, 1); reads_halves(w, o, 2); \
    write_16(w, o, [&](u32 i) { VF a = widen(p[i]), b = widen(q[i]); return narrow(expr); }); }
#define F16_FMA(name) OP(name) { begin(w); \
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes_f16(w, o, 1, 1), *r = lanes_f16(w, o, 2, 2); reads_halves(w, o, 3); \
    write_16(w, o, [&](u32 i) { return narrow(wide64(p[i]) * wide64(q[i]) + wide64(r[i])); }); }
#define F16_3(name, expr) OP(name) { begin(w); \
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes_f16(w, o, 1, 1), *r = lanes_f16(w, o, 2, 2); reads_halves(w, o, 3); \
    write_16(w, o, [&](u32 i) { VF a = widen(p[i]), b = widen(q[i]), c = widen(r[i]); return narrow(expr); }); }
F16_2(v_add_f16, a + b)
F16_2(v_sub_f16, a - b)
F16_2(v_subrev_f16, b - a)
F16_2(v_mul_f16, a * b)
F16_2(v_max_f16, max8(a, b))
F16_2(v_min_f16, min8(a, b))
F16_3(v_max3_f16, max8(max8(a, b), c))
F16_3(v_min3_f16, min8(min8(a, b), c))
F16_3(v_med3_f16, med8(a, b, c))
F16_FMA(v_fma_f16)
F16_FMA(v_fmac_f16)
F16_1(v_rcp_f16, 1.f / a)
F16_1(v_sqrt_f16, __builtin_elementwise_sqrt(a))
F16_1(v_rsq_f16, __builtin_convertvector(1.0 / __builtin_elementwise_sqrt(__builtin_convertvector(a, QF)), VF))
F16_1(v_exp_f16, exp2_8(a))
F16_1(v_log_f16, log2_8(a))
F16_1(v_trunc_f16, __builtin_elementwise_trunc(a))
F16_1(v_floor_f16, __builtin_elementwise_floor(a))
F16_1(v_ceil_f16, __builtin_elementwise_ceil(a))
F16_1(v_rndne_f16, __builtin_elementwise_roundeven(a))
OP(v_ldexp_f16) {
    begin(w);
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    reads_bits(w, o, 2, half_read(o, 0), 0xffff);
    write_16(w, o, [&](u32 i) { return narrow(ldexp_8(widen(p[i]), (V)((VI)(q[i] << 16) >> 16))); });
}
OP(v_div_fixup_f16) {
    begin(w);
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes_f16(w, o, 1, 1), *r = lanes_f16(w, o, 2, 2);
    reads_halves(w, o, 3);
    write_16(w, o, [&](u32 i) {
        VF x, a = widen(p[i]), b = widen(q[i]), c = widen(r[i]);
        for (int l = 0; l < 8; l++) x[l] = div_fixup(a[l], b[l], c[l]);
        return narrow(x);
    });
}
INLINE const V *widened16(Wave &w, const Op &o, int k, int t) {
    const V *p = lanes_f16(w, o, k, t);
    for (u32 c = 0; c < w.chunks; c++) w.t[t].c[c] = (V)widen(p[c]);
    return w.t[t].c;
}
INLINE const V *low16(Wave &w, const Op &o, int k, int t) {
    const V *p = lanes32(w, o, k, t);
    u32 shift = (o.op_sel >> k) & 1 ? 16 : 0;
    for (u32 c = 0; c < w.chunks; c++) w.t[t].c[c] = (p[c] >> shift) & 0xffff;
    return w.t[t].c;
}
INLINE const V *low16_signed(Wave &w, const Op &o, int k, int t) {
    const V *p = low16(w, o, k, t);
    for (u32 c = 0; c < w.chunks; c++) w.t[t].c[c] = (V)((VI)(p[c] << 16) >> 16);
    return w.t[t].c;
}
COMPARE_FLOAT(f16, COMPARE, widened16, VF, 0xffffu)
COMPARE_INT(u16, COMPARE, low16, V, UNSIGNED, 0xffffu, 0x8000u)
COMPARE_INT(i16, COMPARE, low16_signed, VI, WITH_SIGN, 0xffffu, 0x8000u)
OP(v_cmp_class_f16) {
    begin(w);
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    reads_bits(w, o, 2, half_read(o, 0), ~0u);
    u64 bits = 0;
    for (u32 l = 0; l < w.lanes; l++) {
        u16 u = (u16)((const u32 *)p)[l];
        u32 kind = (u & 0x7c00) == 0 && (u & 0x3ff) ? (u >> 15 ? 16 : 128) : 0;
        if ((u & 0x7c00) == 0x7c00 && (u & 0x3ff)) kind = u & 0x200 ? 2 : 1;
        _Float16 h;
        memcpy(&h, &u, 2);
        if (!kind) kind = class_of((float)h);
        bits |= (u64)((kind & ((const u32 *)q)[l]) != 0) << l;
    }
    put_compared(w, o, bits, false);
}

// ---------------------------------------------------------------- conversions

OP(v_cvt_f32_f16) { begin(w); const V *p = lanes_f16(w, o, 0, 0); reads_halves(w, o, 1); write_f32(w, o, [&](u32 i) { return widen(p[i]); }, o.dst[0].reg); }
OP(v_cvt_f16_f32) { begin(w); const V *p = lanes_f32(w, o, 0, 0); write_16(w, o, [&](u32 i) { return narrow((VF)p[i]); }); }
OP(v_cvt_f16_u16) { begin(w); const V *p = low16(w, o, 0, 0); reads_halves(w, o, 1); write_16(w, o, [&](u32 i) { return narrow(__builtin_convertvector((VI)p[i], VF)); }); }
OP(v_cvt_f16_i16) { begin(w); const V *p = low16_signed(w, o, 0, 0); reads_halves(w, o, 1); write_16(w, o, [&](u32 i) { return narrow(__builtin_convertvector((VI)p[i], VF)); }); }
INLINE VI clamp_int(VI x, i32 low, i32 high) {
    x = (VI)pick((V)(x > high), broadcast((u32)high), (V)x);
    return (VI)pick((V)(x < low), broadcast((u32)low), (V)x);
}
OP(v_cvt_u16_f16) { begin(w); const V *p = lanes_f16(w, o, 0, 0); reads_halves(w, o, 1); write_16(w, o, [&](u32 i) { return clamp_int(to_int(widen(p[i])), 0, 65535); }); }
OP(v_cvt_i16_f16) { begin(w); const V *p = lanes_f16(w, o, 0, 0); reads_halves(w, o, 1); write_16(w, o, [&](u32 i) { return clamp_int(to_int(widen(p[i])), -32768, 32767); }); }
// The low half of the result is made of the first operand's bits in a, the high one of the second's in b.
COLD static void undefined_halves(Wave &w, const Op &o, u32 a, u32 b, Row &bits) {
    Row u[2];
    for (int k = 0; k < 2; k++) undefined_bits(w, o, k, u[k]);
    for (u32 l = 0; l < 64; l++)
        ((u32 *)bits.c)[l] = (((u32 *)u[0].c)[l] & a ? 0xffffu : 0) | (((u32 *)u[1].c)[l] & b ? 0xffff0000u : 0);
}
template <class F> INLINE void write_halves(Wave &w, const Op &o, F f, u32 a, u32 b) {
    if (!any_undefined(w)) return write_u32(w, o, f, o.dst[0].reg);
    V r[8];
    Row bits;
    for (u32 c = 0; c < w.chunks; c++) r[c] = (V)f(c);
    undefined_halves(w, o, a, b, bits);
    put_bits(w, o, r, bits, o.dst[0].reg);
}
static u32 half_towards_zero(float x) {
    _Float16 h = (_Float16)x;
    u16 u;
    memcpy(&u, &h, 2);
    if (isinf((float)h) && !isinf(x)) return (u & 0x8000) | 0x7bff;
    if (fabsf((float)h) > fabsf(x)) u--;
    return u;
}
OP(v_cvt_pkrtz_f16_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1);
    write_halves(w, o, [&](u32 i) {
        V r;
        for (int l = 0; l < 8; l++) r[l] = half_towards_zero(((VF)p[i])[l]) | (half_towards_zero(((VF)q[i])[l]) << 16);
        return r;
    }, ~0u, ~0u);
}
REGISTER(v_cvt_pk_rtz_f16_f32, v_cvt_pkrtz_f16_f32)
INLINE V to_bf16(VF x) {
    V u = (V)x, r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    return pick((V)(x != x), (u >> 16) | 0x40, r);
}
OP(v_cvt_pk_bf16_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1);
    write_halves(w, o, [&](u32 i) { return to_bf16((VF)p[i]) | (to_bf16((VF)q[i]) << 16); }, ~0u, ~0u);
}
OP(v_cvt_pk_f16_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1);
    write_halves(w, o, [&](u32 i) { return narrow((VF)p[i]) | (narrow((VF)q[i]) << 16); }, ~0u, ~0u);
}
OP(v_pack_b32_f16) {
    begin(w);
    const V *p = lanes_f16(w, o, 0, 0), *q = lanes_f16(w, o, 1, 1);
    write_halves(w, o, [&](u32 i) { return (p[i] & 0xffff) | (q[i] << 16); }, half_read(o, 0), half_read(o, 1));
}

// ---------------------------------------------------------------- 16-bit integers

// control: the operands of which undefined bits (of `used`) make the result undefined; `how` as above.
template <class F> COLD static void bits_16(Wave &w, const Op &o, F f, int n, const V **p, const V **q, const V **r, u32 control, u32 used, int how) {
    const V **at[3] = {p, q, r};
    const u32 shift[3] = {16 * ((u32)o.op_sel & 1), 16 * (((u32)o.op_sel >> 1) & 1), 16 * (((u32)o.op_sel >> 2) & 1)};
    Row bits;
    V made[8];
    u32 reg = o.dst[0].reg, up = (o.op_sel >> 3) & 1 ? 16 : 0, kept = kept_half(o);
    result_bits(w, o, f, n, at, control, used, how, shift, 0xffff, bits);
    for (u32 c = 0; c < w.chunks; c++) made[c] = (V)f(c) & 0xffff;
    place_16(w, o, made, reg);
    for (u32 l = 0; l < w.lanes; l++) { u32 &x = ((u32 *)bits.c)[l]; x = (x & 0xffff) << up | (undefined_word(w, reg, l) & kept); }
    put_bits(w, o, made, bits, reg);
}
#define I16_2(name, get, expr, control, how) OP(name) { begin(w); const V *p = get(w, o, 0, 0), *q = get(w, o, 1, 1); \
    auto f = [&](u32 i) { V a = p[i], b = q[i]; return (V)(expr); }; \
    if (any_undefined(w)) return bits_16(w, o, f, 2, &p, &q, &q, control, control == 1 ? 15 : 0xffff, how); \
    write_16<false>(w, o, f); }
#define I16_3(name, get, expr, control, how) OP(name) { begin(w); const V *p = get(w, o, 0, 0), *q = get(w, o, 1, 1), *r = get(w, o, 2, 2); \
    auto f = [&](u32 i) { V a = p[i], b = q[i], c = r[i]; return (V)(expr); }; \
    if (any_undefined(w)) return bits_16(w, o, f, 3, &p, &q, &r, control, 0xffff, how); \
    write_16<false>(w, o, f); }
// Sums and differences of 16 bits, with `clamp` cut to what they hold.
INLINE V sum_u16(const Op &o, V a, V b) { V r = a + b; return o.clamp ? pick((V)(r > 0xffff), broadcast(0xffff), r) : r; }
INLINE V difference_u16(const Op &o, V a, V b) { return o.clamp ? pick((V)(a < b), broadcast(0), a - b) : a - b; }
INLINE V cut_i16(const Op &o, V r) { return o.clamp ? maxs(mins(r, broadcast(0x7fff)), broadcast(0xffff8000u)) : r; }
I16_2(v_add_u16, low16, sum_u16(o, a, b), 0, UPWARD)
I16_2(v_sub_u16, low16, difference_u16(o, a, b), 0, UPWARD)
I16_2(v_subrev_u16, low16, difference_u16(o, b, a), 0, UPWARD)
I16_2(v_add_i16, low16_signed, cut_i16(o, a + b), 0, UPWARD)
I16_2(v_sub_i16, low16_signed, cut_i16(o, a - b), 0, UPWARD)
I16_2(v_mul_lo_u16, low16, a * b, 0, UPWARD)
I16_2(v_lshlrev_b16, low16, b << (a & 15), 1, EXACT)
I16_2(v_lshrrev_b16, low16, b >> (a & 15), 1, EXACT)
I16_2(v_ashrrev_i16, low16_signed, SIGNED(b) >> SIGNED(a & 15), 1, EXACT)
I16_2(v_max_u16, low16, maxu(a, b), 3, EXACT)
I16_2(v_min_u16, low16, minu(a, b), 3, EXACT)
I16_2(v_max_i16, low16_signed, maxs(a, b), 3, EXACT)
I16_2(v_min_i16, low16_signed, mins(a, b), 3, EXACT)
I16_2(v_and_b16, low16, a & b, 0, EXACT)
I16_2(v_or_b16, low16, a | b, 0, EXACT)
I16_2(v_xor_b16, low16, a ^ b, 0, EXACT)
I16_3(v_bitop3_b16, low16, bitop3(a, b, c, o.extra), 0, EXACT)
#define I16_1(name, expr) OP(name) { begin(w); const V *p = low16(w, o, 0, 0); auto f = [&](u32 i) { V a = p[i]; return (V)(expr); }; \
    if (any_undefined(w)) return bits_16(w, o, f, 1, &p, &p, &p, 0, 0, EXACT); \
    write_16<false>(w, o, f); }
I16_1(v_mov_b16, a)
I16_1(v_not_b16, ~a)
OP(v_cndmask_b16) {
    begin(w);
    u64 mask = lanes_of(w, o, o.src[2].reg), unclear = w.undefined;
    const V *p = low16(w, o, 0, 0), *q = low16(w, o, 1, 1);
    if (any_undefined(w)) { // where the mask is undefined, or the chosen half is
        u64 lanes[2];
        for (int k = 0; k < 2; k++) { const u32 read[2] = {k == 0 ? half_read(o, 0) : 0, k == 1 ? half_read(o, 1) : 0}; reads_only(w, o, 2, read); lanes[k] = w.undefined; }
        w.undefined = unclear | (mask & lanes[1]) | (~mask & lanes[0]);
    }
    write_16(w, o, [&](u32 i) { return pick(expand((mask >> (8 * i)) & 255), q[i], p[i]); });
}
I16_3(v_max3_u16, low16, maxu(maxu(a, b), c), 7, EXACT)
I16_3(v_min3_u16, low16, minu(minu(a, b), c), 7, EXACT)
I16_3(v_med3_u16, low16, maxu(minu(a, b), minu(maxu(a, b), c)), 7, EXACT)
I16_3(v_max3_i16, low16_signed, maxs(maxs(a, b), c), 7, EXACT)
I16_3(v_min3_i16, low16_signed, mins(mins(a, b), c), 7, EXACT)
I16_3(v_med3_i16, low16_signed, maxs(mins(a, b), mins(maxs(a, b), c)), 7, EXACT)
I16_3(v_mad_u16, low16, a * b + c, 0, UPWARD)
I16_3(v_mad_legacy_u16, low16, a * b + c, 0, UPWARD)

// ---------------------------------------------------------------- packed halves

// The half of each lane that a result reads: `high` is op_sel or op_sel_hi.
INLINE const V *packed16(Wave &w, const Op &o, int k, int t, u32 high, u32 neg) {
    const V *p = lanes32(w, o, k, t);
    u32 shift = (high >> k) & 1 ? 16 : 0, flip = (neg >> k) & 1 ? 0x8000 : 0;
    for (u32 c = 0; c < w.chunks; c++) w.t[t].c[c] = ((p[c] >> shift) & 0xffff) ^ flip;
    return w.t[t].c;
}
// Each half is undefined where what it reads is. w.undefined: of both.
COLD static void packed_bits(Wave &w, const Op &o, int n, Row &bits) {
    memset(&bits, 0, sizeof bits);
    for (int k = 0; k < n; k++) {
        Row u;
        undefined_bits(w, o, k, u);
        u32 low = (o.op_sel >> k) & 1 ? 0xffff0000u : 0xffffu, high = (o.op_sel_hi >> k) & 1 ? 0xffff0000u : 0xffffu;
        for (u32 l = 0; l < w.lanes; l++) {
            u32 x = ((u32 *)u.c)[l];
            ((u32 *)bits.c)[l] |= (x & low ? 0xffffu : 0) | (x & high ? 0xffff0000u : 0);
        }
    }
}
template <int N, bool FLOAT, class F> INLINE void packed(Wave &w, const Op &o, F f) {
    begin(w);
    const V *p[2][3];
    for (int k = 0; k < N; k++) {
        p[0][k] = packed16(w, o, k, k, o.op_sel, o.neg_lo);
        p[1][k] = packed16(w, o, k, 3 + k, o.op_sel_hi, o.neg_hi);
    }
    V r[8];
    for (u32 c = 0; c < w.chunks; c++) {
        V zero = broadcast(0);
        V lo = (V)f(p[0][0][c], N > 1 ? p[0][1][c] : zero, N > 2 ? p[0][2][c] : zero) & 0xffff;
        V hi = (V)f(p[1][0][c], N > 1 ? p[1][1][c] : zero, N > 2 ? p[1][2][c] : zero) & 0xffff;
        if (FLOAT && o.clamp) { lo = clamp16(lo); hi = clamp16(hi); }
        r[c] = lo | (hi << 16);
    }
    if (any_undefined(w)) { Row bits; packed_bits(w, o, N, bits); return put_bits(w, o, r, bits, o.dst[0].reg); }
    put(w, o, r, o.dst[0].reg);
}
INLINE V s16(V x) { return (V)((VI)(x << 16) >> 16); }
#define PK16(name, n, expr) OP(name) { packed<n, false>(w, o, [&](V a, V b, V c) { (void)b; (void)c; return expr; }); }
#define PKF16(name, n, expr) OP(name) { packed<n, true>(w, o, [](V a, V b, V c) { (void)b; (void)c; return expr; }); }
PKF16(v_pk_add_f16, 2, narrow(widen(a) + widen(b)))
PKF16(v_pk_mul_f16, 2, narrow(widen(a) * widen(b)))
PKF16(v_pk_max_f16, 2, narrow(max8(widen(a), widen(b))))
PKF16(v_pk_min_f16, 2, narrow(min8(widen(a), widen(b))))
PKF16(v_pk_fma_f16, 3, narrow(wide64(a) * wide64(b) + wide64(c)))
PK16(v_pk_add_u16, 2, sum_u16(o, a, b))
PK16(v_pk_sub_u16, 2, difference_u16(o, a, b))
PK16(v_pk_add_i16, 2, cut_i16(o, s16(a) + s16(b)))
PK16(v_pk_sub_i16, 2, cut_i16(o, s16(a) - s16(b)))
PK16(v_pk_mul_lo_u16, 2, a * b)
PK16(v_pk_mad_u16, 3, a * b + c)
PK16(v_pk_mad_i16, 3, a * b + c)
PK16(v_pk_max_u16, 2, maxu(a, b))
PK16(v_pk_min_u16, 2, minu(a, b))
PK16(v_pk_max_i16, 2, maxs(s16(a), s16(b)))
PK16(v_pk_min_i16, 2, mins(s16(a), s16(b)))
PK16(v_pk_lshlrev_b16, 2, b << (a & 15))
PK16(v_pk_lshrrev_b16, 2, b >> (a & 15))
PK16(v_pk_ashrrev_i16, 2, SIGNED(s16(b)) >> SIGNED(a & 15))

// ---------------------------------------------------------------- mixed

// A source of V_FMA_MIX: op_sel_hi chooses float16, then op_sel its half; `neg_hi` means absolute value.
INLINE void mixed(Wave &w, const Op &o, int k, VF *out) {
    const V *p = lanes32(w, o, k, k);
    bool half = (o.op_sel_hi >> k) & 1;
    u32 shift = (o.op_sel >> k) & 1 ? 16 : 0;
    for (u32 c = 0; c < w.chunks; c++) {
        VF x = half ? widen(p[c] >> shift) : (VF)p[c];
        if (((o.neg_hi >> k) & 1) || (o.src[k].mods & ABS)) x = (VF)((V)x & 0x7fffffff);
        if (((o.neg_lo >> k) & 1) || (o.src[k].mods & NEG)) x = (VF)((V)x ^ 0x80000000);
        out[c] = x;
    }
}
INLINE u32 mixed_read(const Op &o, int k) { return (o.op_sel_hi >> k) & 1 ? half_read(o, k) : ~0u; }
INLINE void fma_mix(Wave &w, const Op &o, VF *r) {
    begin(w);
    VF p[8], q[8], s[8];
    mixed(w, o, 0, p); mixed(w, o, 1, q); mixed(w, o, 2, s);
    reads_bits(w, o, 3, mixed_read(o, 0), mixed_read(o, 1), mixed_read(o, 2));
    for (u32 c = 0; c < w.chunks; c++) r[c] = fma8(p[c], q[c], s[c]);
    if (o.clamp) scale_f32(o, (V *)r);
}
OP(v_fma_mix_f32) { VF r[8]; fma_mix(w, o, r); put(w, o, (V *)r, o.dst[0].reg); }
template <int HIGH> INLINE void fma_mix_half(Wave &w, const Op &o) {
    VF r[8];
    fma_mix(w, o, r);
    u32 reg = o.dst[0].reg;
    V x[8];
    for (u32 c = 0; c < w.chunks; c++) {
        V old = w.v[reg].c[c], h = narrow(r[c]);
        x[c] = HIGH ? (h << 16) | (old & 0xffff) : h | (old & 0xffff0000);
    }
    const u32 made = HIGH ? 0xffff0000u : 0xffffu;
    if (__builtin_expect(((w.undefined | ~w.v_defined[reg]) & w.active) != 0, 0)) return put_beside(w, o, x, reg, made, ~made);
    put(w, o, x, reg);
}
OP(v_fma_mixlo_f16) { fma_mix_half<0>(w, o); }
OP(v_fma_mixhi_f16) { fma_mix_half<1>(w, o); }
OP(v_dot2_f32_f16) { // products and sums in float32, each rounded
    begin(w);
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1), *r = lanes_f32(w, o, 2, 2);
    write_f32(w, o, [&](u32 i) { return fma8(widen(p[i] >> 16), widen(q[i] >> 16), fma8(widen(p[i]), widen(q[i]), (VF)r[i])); }, o.dst[0].reg);
}
REGISTER(v_dot2c_f32_f16, v_dot2_f32_f16)
REGISTER(v_dot2acc_f32_f16, v_dot2_f32_f16)
template <bool S, int BITS> INLINE V dot(V a, V b, V c) {
    for (int j = 0; j < 32; j += BITS) {
        V x = (a >> (u32)j) << (32 - BITS), y = (b >> (u32)j) << (32 - BITS);
        if (S) c += (V)(((VI)x >> (32 - BITS)) * ((VI)y >> (32 - BITS)));
        else c += (x >> (32 - BITS)) * (y >> (32 - BITS));
    }
    return c;
}
INT_3(v_dot4_i32_i8, (dot<true, 8>(a, b, c)))
INT_3(v_dot4_u32_u8, (dot<false, 8>(a, b, c)))
INT_3(v_dot2_i32_i16, (dot<true, 16>(a, b, c)))
INT_3(v_dot2_u32_u16, (dot<false, 16>(a, b, c)))
REGISTER(v_dot4c_i32_i8, v_dot4_i32_i8)
