// Vector instructions on integers and bits, comparisons, selections, conversions, and lanes.
#pragma once
#include "valu_float.h"

INLINE V low24(V x) { return x & 0xffffff; }
INLINE VI low24s(V x) { return (VI)(x << 8) >> 8; }
INLINE V high_product(V a, V b) {
    return __builtin_convertvector((__builtin_convertvector(a, Q) * __builtin_convertvector(b, Q)) >> 32, V);
}
INLINE V high_product_signed(V a, V b) {
    QI p = __builtin_convertvector((VI)a, QI) * __builtin_convertvector((VI)b, QI);
    return __builtin_convertvector((Q)p >> 32, V);
}
template <class F> INLINE V each(V x, F f) {
    V y;
    for (int i = 0; i < 8; i++) y[i] = f(x[i]);
    return y;
}
static u32 reversed(u32 x) { return __builtin_bitreverse32(x); }
static u32 first_low(u32 x) { return x ? (u32)__builtin_ctz(x) : ~0u; }
static u32 first_high(u32 x) { return x ? (u32)__builtin_clz(x) : ~0u; }
static u32 first_sign(u32 x) { return first_high((i32)x < 0 ? ~x : x); }
static u32 permute_byte(u32 select, u64 both) { // both: the first source above the second
    if (select >= 13) return 0xff;
    if (select == 12) return 0;
    if (select >= 8) return ((both >> (16 * (select - 8) + 15)) & 1) ? 0xff : 0;
    return (both >> (8 * select)) & 255;
}
INLINE V perm8(V a, V b, V s) {
    V r;
    for (int i = 0; i < 8; i++) {
        u64 both = ((u64)a[i] << 32) | b[i];
        u32 x = 0;
        for (int j = 0; j < 4; j++) x |= permute_byte((s[i] >> (8 * j)) & 255, both) << (8 * j);
        r[i] = x;
    }
    return r;
}
INLINE V bfe_unsigned(V a, V b, V c) {
    V width = c & 31, x = a >> (b & 31), mask = (broadcast(1) << width) - 1;
    return x & mask;
}
INLINE V bfe_signed(V a, V b, V c) {
    V width = c & 31, x = a >> (b & 31), up = (32 - width) & 31;
    V wide = (V)((VI)a >> (VI)(b & 31)); // a field that reaches past bit 31 is extended with the sign
    V r = (V)((VI)(x << up) >> (VI)up);
    r = pick((V)(((b & 31) + width) > 31), wide, r);
    return pick((V)(width == 0), broadcast(0), r);
}
#define INT_1(name, expr) OP(name) { begin(w); const V *p = lanes32(w, o, 0, 0); \
    write_u32(w, o, [&](u32 i) { V a = p[i]; return expr; }, o.dst[0].reg); }
#define INT_2(name, expr) OP(name) { begin(w); const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1); \
    write_u32(w, o, [&](u32 i) { V a = p[i], b = q[i]; return expr; }, o.dst[0].reg); }
#define INT_3(name, expr) OP(name) { begin(w); \
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1), *r = lanes32(w, o, 2, 2); \
    write_u32(w, o, [&](u32 i) { V a = p[i], b = q[i], c = r[i]; return expr; }, o.dst[0].reg); }
// The same, with the undefined bits of the result: `how` and which operands choose (`control`) by which bits (`used`).
#define BITS_1(name, expr, how) OP(name) { begin(w); const V *p = lanes32(w, o, 0, 0); \
    auto f = [&](u32 i) { V a = p[i]; return expr; }; \
    if (any_undefined(w)) return write_bits(w, o, f, 1, &p, &p, &p, 0, 0, how); \
    write_u32(w, o, f, o.dst[0].reg); }
#define BITS_2(name, expr, control, used, how) OP(name) { begin(w); const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1); \
    auto f = [&](u32 i) { V a = p[i], b = q[i]; return expr; }; \
    if (any_undefined(w)) return write_bits(w, o, f, 2, &p, &q, &q, control, used, how); \
    write_u32(w, o, f, o.dst[0].reg); }
#define BITS_3(name, expr, control, used, how) OP(name) { begin(w); \
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1), *r = lanes32(w, o, 2, 2); \
    auto f = [&](u32 i) { V a = p[i], b = q[i], c = r[i]; return expr; }; \
    if (any_undefined(w)) return write_bits(w, o, f, 3, &p, &q, &r, control, used, how); \
    write_u32(w, o, f, o.dst[0].reg); }
#define SIGNED(x) ((VI)(x))
OP(v_mov_b32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0);
    auto f = [&](u32 i) { return p[i]; };
    if (any_undefined(w)) return write_bits(w, o, f, 1, &p, &p, &p, 0, 0, EXACT);
    write_u32(w, o, f, o.dst[0].reg);
}
// Sums and differences: without `clamp`, or cut to the ends of what 32 bits hold.
INLINE V cut_unsigned(V r, V over, bool up) { return pick(over, broadcast(up ? ~0u : 0), r); }
INLINE V cut_signed(V r, V over, V a) { return pick(over, pick((V)((VI)a < 0), broadcast(0x80000000u), broadcast(0x7fffffffu)), r); }
INLINE V sum_u32(const Op &o, V a, V b) { V r = a + b; return o.clamp ? cut_unsigned(r, (V)(r < a), true) : r; }
INLINE V difference_u32(const Op &o, V a, V b) { return o.clamp ? cut_unsigned(a - b, (V)(a < b), false) : a - b; }
INLINE V sum_i32(const Op &o, V a, V b) { V r = a + b; return o.clamp ? cut_signed(r, (V)((VI)((a ^ r) & (b ^ r)) < 0), a) : r; }
INLINE V difference_i32(const Op &o, V a, V b) { V r = a - b; return o.clamp ? cut_signed(r, (V)((VI)((a ^ b) & (a ^ r)) < 0), a) : r; }
REGISTER(v_accvgpr_read_b32, v_mov_b32)
REGISTER(v_accvgpr_write_b32, v_mov_b32)
REGISTER(v_accvgpr_mov_b32, v_mov_b32)
BITS_1(v_not_b32, ~a, EXACT)
BITS_1(v_bfrev_b32, each(a, reversed), EXACT)
BITS_1(v_ffbl_b32, each(a, first_low), MONOTONE)
BITS_1(v_ffbh_u32, each(a, first_high), MONOTONE)
INT_1(v_ffbh_i32, each(a, first_sign))
BITS_2(v_add_u32, sum_u32(o, a, b), 0, 0, UPWARD)
BITS_2(v_sub_u32, difference_u32(o, a, b), 0, 0, UPWARD)
BITS_2(v_subrev_u32, difference_u32(o, b, a), 0, 0, UPWARD)
BITS_2(v_add_i32, sum_i32(o, a, b), 0, 0, UPWARD)
BITS_2(v_sub_i32, difference_i32(o, a, b), 0, 0, UPWARD)
BITS_2(v_and_b32, a & b, 0, 0, EXACT)
BITS_2(v_or_b32, a | b, 0, 0, EXACT)
BITS_2(v_xor_b32, a ^ b, 0, 0, EXACT)
BITS_2(v_xnor_b32, ~(a ^ b), 0, 0, EXACT)
BITS_2(v_lshlrev_b32, b << (a & 31), 1, 31, EXACT)
BITS_2(v_lshrrev_b32, b >> (a & 31), 1, 31, EXACT)
BITS_2(v_ashrrev_i32, SIGNED(b) >> SIGNED(a & 31), 1, 31, EXACT)
BITS_2(v_mul_lo_u32, a * b, 0, 0, UPWARD)
INT_2(v_mul_hi_u32, high_product(a, b))
INT_2(v_mul_hi_i32, high_product_signed(a, b))
BITS_2(v_mul_u32_u24, low24(a) * low24(b), 0, 0, UPWARD)
BITS_2(v_mul_i32_i24, low24s(a) * low24s(b), 0, 0, UPWARD)
INT_2(v_mul_hi_u32_u24, high_product(low24(a), low24(b)))
INT_2(v_mul_hi_i32_i24, high_product_signed((V)low24s(a), (V)low24s(b)))
BITS_2(v_max_u32, pick((V)(a > b), a, b), 0, 0, MONOTONE)
BITS_2(v_min_u32, pick((V)(a < b), a, b), 0, 0, MONOTONE)
INT_2(v_max_i32, pick((V)(SIGNED(a) > SIGNED(b)), a, b))
INT_2(v_min_i32, pick((V)(SIGNED(a) < SIGNED(b)), a, b))
INT_2(v_bfm_b32, ((broadcast(1) << (a & 31)) - 1) << (b & 31))
INT_2(v_bcnt_u32_b32, each(a, [](u32 x) { return (u32)__builtin_popcount(x); }) + b)
BITS_3(v_add3_u32, a + b + c, 0, 0, UPWARD)
BITS_3(v_lshl_add_u32, (a << (b & 31)) + c, 2, 31, UPWARD)
BITS_3(v_add_lshl_u32, (a + b) << (c & 31), 4, 31, UPWARD)
BITS_3(v_lshl_or_b32, (a << (b & 31)) | c, 2, 31, EXACT)
BITS_3(v_and_or_b32, (a & b) | c, 0, 0, EXACT)
BITS_3(v_or3_b32, a | b | c, 0, 0, EXACT)
BITS_3(v_xor3_b32, a ^ b ^ c, 0, 0, EXACT)
BITS_3(v_xad_u32, (a ^ b) + c, 0, 0, UPWARD)
BITS_3(v_bfi_b32, (a & b) | (~a & c), 0, 0, EXACT)
BITS_3(v_bfe_u32, bfe_unsigned(a, b, c), 6, 31, EXACT)
BITS_3(v_bfe_i32, bfe_signed(a, b, c), 6, 31, EXACT)
BITS_3(v_perm_b32, perm8(a, b, c), 4, ~0u, EXACT)
BITS_3(v_alignbit_b32, pick((V)((c & 31) == 0), b, (a << ((32 - (c & 31)) & 31)) | (b >> (c & 31))), 4, 31, EXACT)
BITS_3(v_alignbyte_b32, pick((V)((c & 3) == 0), b, (a << ((32 - 8 * (c & 3)) & 31)) | (b >> (8 * (c & 3)))), 4, 3, EXACT)
BITS_3(v_mad_u32_u24, low24(a) * low24(b) + c, 0, 0, UPWARD)
BITS_3(v_mad_i32_i24, (V)(low24s(a) * low24s(b)) + c, 0, 0, UPWARD)
INT_3(v_mad_u32_u16, (a & 0xffff) * (b & 0xffff) + c)
INT_3(v_mad_i32_i16, (V)(((VI)(a << 16) >> 16) * ((VI)(b << 16) >> 16)) + c)
BITS_3(v_max3_u32, pick((V)(pick((V)(a > b), a, b) > c), pick((V)(a > b), a, b), c), 0, 0, MONOTONE)
BITS_3(v_min3_u32, pick((V)(pick((V)(a < b), a, b) < c), pick((V)(a < b), a, b), c), 0, 0, MONOTONE)
INLINE V maxs(V a, V b) { return pick((V)(SIGNED(a) > SIGNED(b)), a, b); }
INLINE V mins(V a, V b) { return pick((V)(SIGNED(a) < SIGNED(b)), a, b); }
INLINE V maxu(V a, V b) { return pick((V)(a > b), a, b); }
INLINE V minu(V a, V b) { return pick((V)(a < b), a, b); }
INT_3(v_max3_i32, maxs(maxs(a, b), c))
INT_3(v_min3_i32, mins(mins(a, b), c))
INT_3(v_med3_i32, maxs(mins(a, b), mins(maxs(a, b), c)))
BITS_3(v_med3_u32, maxu(minu(a, b), minu(maxu(a, b), c)), 0, 0, MONOTONE)
INT_3(v_minmax_u32, maxu(minu(a, b), c))
INT_3(v_maxmin_u32, minu(maxu(a, b), c))
INT_3(v_minmax_i32, maxs(mins(a, b), c))
INT_3(v_maxmin_i32, mins(maxs(a, b), c))
INLINE V bitop3(V a, V b, V c, u32 table) { // table: the result for a = 0xf0, b = 0xcc, c = 0xaa
    V r = broadcast(0);
    for (u32 i = 0; i < 8; i++)
        if ((table >> i) & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
BITS_3(v_bitop3_b32, bitop3(a, b, c, o.extra), 0, 0, EXACT)
INT_3(v_sad_u32, pick((V)(a > b), a - b, b - a) + c)

// ---------------------------------------------------------------- 64 bits

#define Q_2(name, expr) OP(name) { begin(w); Q p[8], q[8]; lanes64(w, o, 0, p); lanes64(w, o, 1, q); \
    for (u32 i = 0; i < w.chunks; i++) { Q a = p[i], b = q[i]; p[i] = (Q)(expr); } put_q(w, o, p); }
INLINE void wide32(Wave &w, const Op &o, int k, Q *out) {
    const V *p = lanes32(w, o, k, k);
    for (u32 c = 0; c < w.chunks; c++) out[c] = __builtin_convertvector(p[c], Q);
}
// The undefined bits of a pair of registers, as 64-bit lanes.
COLD static void undefined_pairs(Wave &w, const Op &o, int k, Q *out) {
    Row low, high;
    undefined_bits(w, o, k, low);
    undefined_bits(w, o, k, high, o.src[k].kind == VGPR || o.src[k].kind == SGPR);
    for (u32 c = 0; c < w.chunks; c++) out[c] = __builtin_convertvector(low.c[c], Q) | __builtin_convertvector(high.c[c], Q) << 32;
}
COLD static void put_pairs(Wave &w, const Op &o, const Q *r, const Q *bits) {
    for (u32 half = 0; half < 2; half++) {
        V word[8];
        Row u;
        memset(&u, 0, sizeof u);
        for (u32 c = 0; c < w.chunks; c++) {
            word[c] = __builtin_convertvector(r[c] >> (u64)(32 * half), V);
            u.c[c] = __builtin_convertvector(bits[c] >> (u64)(32 * half), V);
        }
        put_bits(w, o, word, u, o.dst[0].reg + half);
    }
}
template <class F> COLD static void shift_pairs(Wave &w, const Op &o, Q *p, const Q *q, F f) {
    Row amount;
    Q u[8], one[8];
    undefined_bits(w, o, 0, amount);
    undefined_pairs(w, o, 1, u);
    for (u32 c = 0; c < w.chunks; c++) {
        one[c] = f(p[c] & 63, q[c] | u[c]) ^ f(p[c] & 63, q[c] & ~u[c]);
        for (int i = 0; i < 8; i++) if (amount.c[c][i] & 63) one[c][i] = ~0ull;
        p[c] = f(p[c] & 63, q[c]);
    }
    put_pairs(w, o, p, one);
}
#define SHIFT_64(name, expr) OP(name) { begin(w); Q p[8], q[8]; wide32(w, o, 0, p); lanes64(w, o, 1, q, 2); \
    auto f = [](Q a, Q b) { return (Q)(expr); }; \
    if (any_undefined(w)) return shift_pairs(w, o, p, q, f); \
    for (u32 i = 0; i < w.chunks; i++) p[i] = f(p[i] & 63, q[i]); put_q(w, o, p); }
SHIFT_64(v_lshlrev_b64, b << a)
SHIFT_64(v_lshrrev_b64, b >> a)
SHIFT_64(v_ashrrev_i64, (QI)b >> (QI)a)
OP(v_mov_b64) {
    begin(w);
    Q p[8];
    lanes64(w, o, 0, p);
    if (!any_undefined(w)) return put_q(w, o, p);
    Q u[8];
    undefined_pairs(w, o, 0, u);
    put_pairs(w, o, p, u);
}
OP(v_lshl_add_u64) {
    begin(w);
    Q p[8], q[8], r[8];
    lanes64(w, o, 0, p); wide32(w, o, 1, q); lanes64(w, o, 2, r, 2);
    for (u32 i = 0; i < w.chunks; i++) p[i] = (p[i] << (q[i] & 7)) + r[i];
    Unknown u = {0, 0};
    note_words(w, o, 0, u);
    note_words(w, o, 2, u);
    put_words(w, o, p, u, true);
}
OP(v_mad_u64_u32) {
    begin(w);
    Q p[8], q[8], r[8];
    wide32(w, o, 0, p); wide32(w, o, 1, q);
    Unknown u = {w.undefined, 0};
    note_words(w, o, 2, u);
    lanes64(w, o, 2, r, 2);
    u64 carry = 0;
    for (u32 i = 0; i < w.chunks; i++) {
        p[i] = p[i] * q[i] + r[i];
        for (int l = 0; l < 8; l++) carry |= (u64)(p[i][l] < r[i][l]) << (8 * i + l);
    }
    if (__builtin_expect(((u.low | u.high) & w.active) != 0, 0)) put_product(w, o, p, u);
    else put_words(w, o, p, u, true);
    if (o.dst[1].kind == SGPR) put_lanes(w, o, o.dst[1].reg, carry & w.active);
}
OP(v_mad_i64_i32) {
    begin(w);
    Q p[8], q[8], r[8];
    wide32(w, o, 0, p); wide32(w, o, 1, q);
    Unknown u = {w.undefined, 0};
    note_words(w, o, 2, u);
    lanes64(w, o, 2, r, 2);
    for (u32 i = 0; i < w.chunks; i++)
        p[i] = (Q)(((QI)(p[i] << 32) >> 32) * ((QI)(q[i] << 32) >> 32)) + r[i];
    put_words(w, o, p, u, true);
    if (o.dst[1].kind == SGPR) put_lanes(w, o, o.dst[1].reg, 0);
}

// ---------------------------------------------------------------- carries

template <int MODE> INLINE void carry(Wave &w, const Op &o, bool takes) { // MODE 0: a + b, 1: a - b, 2: b - a
    begin(w);
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    u64 in = takes ? lanes_of(w, o, o.src[2].reg) : 0, out = 0;
    V r[8];
    for (u32 i = 0; i < w.chunks; i++) {
        V a = p[i], b = q[i], one = expand((in >> (8 * i)) & 255) & 1, over;
        if (MODE == 2) { V x = a; a = b; b = x; }
        if (MODE == 0) { r[i] = a + b + one; over = (V)(r[i] < a) | ((V)(r[i] == a) & (V)(one != 0)); }
        else { r[i] = a - b - one; over = (V)(a < b) | ((V)(a == b) & (V)(one != 0)); }
        out |= (u64)gather_bits(over) << (8 * i);
    }
    u64 unclear = w.undefined & w.active;
    put(w, o, r, o.dst[0].reg);
    if (o.dst[1].kind == SGPR) put_lanes(w, o, o.dst[1].reg, out & w.active, unclear);
}
OP(v_add_co_u32) { carry<0>(w, o, false); }
OP(v_sub_co_u32) { carry<1>(w, o, false); }
OP(v_subrev_co_u32) { carry<2>(w, o, false); }
OP(v_addc_co_u32) { carry<0>(w, o, true); }
OP(v_subb_co_u32) { carry<1>(w, o, true); }
OP(v_subbrev_co_u32) { carry<2>(w, o, true); }

// ---------------------------------------------------------------- comparisons

INLINE void put_compared(Wave &w, const Op &o, u64 bits, bool to_exec) {
    bits &= w.active;
    u64 unclear = w.undefined & w.active;
    if (o.dst[0].kind == SGPR) put_lanes(w, o, o.dst[0].reg, bits, unclear);
    if (to_exec) put_lanes(w, o, EXEC, bits, unclear);
}
#define COMPARE(name, get, T, expr, how, mask, sign) \
    template <bool X> INLINE void any_##name(Wave &w, const Op &o) { begin(w); \
        const V *p = get(w, o, 0, 0), *q = get(w, o, 1, 1); u64 bits = 0; \
        if (any_undefined(w)) \
            w.undefined = undefined_compared(w, o, [](u32 x, u32 y) { T a = (T)broadcast(x), b = (T)broadcast(y); return ((V)(expr))[0] != 0; }, p, q, how, mask, sign); \
        for (u32 i = 0; i < w.chunks; i++) { T a = (T)p[i], b = (T)q[i]; bits |= (u64)gather_bits((V)(expr)) << (8 * i); } \
        put_compared(w, o, bits, X); } \
    OP(v_cmp_##name) { any_##name<false>(w, o); } OP(v_cmpx_##name) { any_##name<true>(w, o); }
#define COMPARE_Q(name, get, T, expr, how, mask, sign) \
    template <bool X> INLINE void any_##name(Wave &w, const Op &o) { begin(w); \
        Q p[8], q[8]; get(w, o, 0, p); get(w, o, 1, q); u64 bits = 0; \
        for (u32 i = 0; i < w.chunks; i++) { T a = (T)p[i], b = (T)q[i]; \
            bits |= (u64)gather_bits(__builtin_convertvector((Q)(expr), V)) << (8 * i); } \
        put_compared(w, o, bits, X); } \
    OP(v_cmp_##name) { any_##name<false>(w, o); } OP(v_cmpx_##name) { any_##name<true>(w, o); }
#define COMPARE_INT(type, M, get, T, order, mask, sign) M(eq_##type, get, T, a == b, EQUAL, mask, sign) \
    M(ne_##type, get, T, a != b, EQUAL, mask, sign) M(lt_##type, get, T, a < b, order, mask, sign) \
    M(le_##type, get, T, a <= b, order, mask, sign) M(gt_##type, get, T, a > b, order, mask, sign) M(ge_##type, get, T, a >= b, order, mask, sign)
#define COMPARE_FLOAT(type, M, get, T, mask) M(eq_##type, get, T, a == b, WHOLE, mask, 0) M(lg_##type, get, T, (a < b) | (a > b), WHOLE, mask, 0) \
    M(lt_##type, get, T, a < b, WHOLE, mask, 0) M(le_##type, get, T, a <= b, WHOLE, mask, 0) M(gt_##type, get, T, a > b, WHOLE, mask, 0) \
    M(ge_##type, get, T, a >= b, WHOLE, mask, 0) M(neq_##type, get, T, ~(a == b), WHOLE, mask, 0) \
    M(nlg_##type, get, T, ~((a < b) | (a > b)), WHOLE, mask, 0) M(nlt_##type, get, T, ~(a < b), WHOLE, mask, 0) \
    M(nle_##type, get, T, ~(a <= b), WHOLE, mask, 0) M(ngt_##type, get, T, ~(a > b), WHOLE, mask, 0) M(nge_##type, get, T, ~(a >= b), WHOLE, mask, 0) \
    M(u_##type, get, T, (a != a) | (b != b), WHOLE, mask, 0) M(o_##type, get, T, (a == a) & (b == b), WHOLE, mask, 0)
COMPARE_INT(u32, COMPARE, lanes32, V, UNSIGNED, ~0u, 0x80000000u)
COMPARE_INT(i32, COMPARE, lanes32, VI, WITH_SIGN, ~0u, 0x80000000u)
COMPARE_INT(u64, COMPARE_Q, lanes64, Q, WHOLE, 0, 0)
COMPARE_INT(i64, COMPARE_Q, lanes64, QI, WHOLE, 0, 0)
COMPARE_FLOAT(f32, COMPARE, lanes_f32, VF, ~0u)
COMPARE_FLOAT(f64, COMPARE_Q, lanes_f64, QF, 0)
static u32 class_of(float x) {
    u32 u;
    memcpy(&u, &x, 4);
    bool negative = u >> 31;
    if (isnan(x)) return u & 0x400000 ? 2 : 1;
    if (isinf(x)) return negative ? 4 : 512;
    if (x == 0) return negative ? 32 : 64;
    if (denormal(x)) return negative ? 16 : 128;
    return negative ? 8 : 256;
}
static u32 class_of(double x) {
    u64 u;
    memcpy(&u, &x, 8);
    if (isnan(x)) return (u >> 51) & 1 ? 2 : 1;
    return denormal(x) ? (u >> 63 ? 16 : 128) : class_of((float)(isinf(x) || x == 0 ? x : signbit(x) ? -1.0 : 1.0));
}
OP(v_cmp_class_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    u64 bits = 0;
    for (u32 l = 0; l < w.lanes; l++) bits |= (u64)((class_of(((const float *)p)[l]) & ((const u32 *)q)[l]) != 0) << l;
    put_compared(w, o, bits, false);
}
OP(v_cmp_class_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    const V *q = lanes32(w, o, 1, 1);
    u64 bits = 0;
    for (u32 l = 0; l < w.lanes; l++) bits |= (u64)((class_of(((double *)p)[l]) & ((const u32 *)q)[l]) != 0) << l;
    put_compared(w, o, bits, false);
}
// Where the mask's bit is undefined, so is the result, unless both operands are the same.
COLD static void chosen_bits(Wave &w, const Op &o, u64 mask, u64 unclear, const V *p, const V *q) {
    Row u[2], bits;
    V r[8];
    for (int k = 0; k < 2; k++) undefined_bits(w, o, k, u[k]);
    for (u32 c = 0; c < w.chunks; c++) {
        V yes = expand((mask >> (8 * c)) & 255), either = expand((unclear >> (8 * c)) & 255);
        V differ = (V)(((p[c] ^ q[c]) | u[0].c[c] | u[1].c[c]) != 0);
        r[c] = pick(yes, q[c], p[c]);
        bits.c[c] = pick(either, differ, pick(yes, u[1].c[c], u[0].c[c]));
    }
    put_bits(w, o, r, bits, o.dst[0].reg);
}
OP(v_cndmask_b32) {
    begin(w);
    u64 before = w.undefined;
    w.undefined = 0;
    u64 mask = lanes_of(w, o, o.src[2].reg), unclear = w.undefined;
    w.undefined |= before;
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1);
    if (any_undefined(w)) return chosen_bits(w, o, mask, unclear, p, q);
    write_u32(w, o, [&](u32 i) { return pick(expand((mask >> (8 * i)) & 255), q[i], p[i]); }, o.dst[0].reg);
}

// ---------------------------------------------------------------- conversions

INLINE VI to_int(VF x) {
    V nan = (V)(x != x), high = (V)(x >= 2147483648.f), low = (V)(x < -2147483648.f);
    VI r = __builtin_convertvector(pick(nan | high | low, (VF)broadcast(0), x), VI);
    return (VI)pick(high, broadcast(0x7fffffff), pick(low, broadcast(0x80000000), (V)r));
}
INLINE V to_unsigned(VF x) {
    V low = (V)(x <= -1.f) | (V)(x != x), high = (V)(x >= 4294967296.f);
    QI wide = __builtin_convertvector(pick(low | high, (VF)broadcast(0), x), QI);
    return pick(high, broadcast(~0u), __builtin_convertvector((Q)wide, V));
}
OP(v_cvt_i32_f32) { begin(w); const V *p = lanes_f32(w, o, 0, 0); write_u32(w, o, [&](u32 i) { return to_int((VF)p[i]); }, o.dst[0].reg); }
OP(v_cvt_u32_f32) { begin(w); const V *p = lanes_f32(w, o, 0, 0); write_u32(w, o, [&](u32 i) { return to_unsigned((VF)p[i]); }, o.dst[0].reg); }
OP(v_cvt_rpi_i32_f32) { begin(w); const V *p = lanes_f32(w, o, 0, 0); write_u32(w, o, [&](u32 i) { return to_int(__builtin_elementwise_floor((VF)p[i] + 0.5f)); }, o.dst[0].reg); }
OP(v_cvt_flr_i32_f32) { begin(w); const V *p = lanes_f32(w, o, 0, 0); write_u32(w, o, [&](u32 i) { return to_int(__builtin_elementwise_floor((VF)p[i])); }, o.dst[0].reg); }
OP(v_cvt_f32_i32) { begin(w); const V *p = lanes32(w, o, 0, 0); write_f32(w, o, [&](u32 i) { return __builtin_convertvector((VI)p[i], VF); }, o.dst[0].reg); }
OP(v_cvt_f32_u32) { begin(w); const V *p = lanes32(w, o, 0, 0); write_f32(w, o, [&](u32 i) { return __builtin_convertvector(__builtin_convertvector(p[i], QI), VF); }, o.dst[0].reg); }
#define CVT_UBYTE(n) OP(v_cvt_f32_ubyte##n) { begin(w); const V *p = lanes32(w, o, 0, 0); reads_bits(w, o, 1, 255u << (8 * n)); \
    write_f32(w, o, [&](u32 i) { return __builtin_convertvector((VI)((p[i] >> (8 * n)) & 255), VF); }, o.dst[0].reg); }
CVT_UBYTE(0) CVT_UBYTE(1) CVT_UBYTE(2) CVT_UBYTE(3)
OP(v_cvt_f64_f32) {
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0);
    Q r[8];
    for (u32 i = 0; i < w.chunks; i++) r[i] = (Q)__builtin_convertvector((VF)p[i], QF);
    put_f64(w, o, r);
}
OP(v_cvt_f64_i32) {
    begin(w);
    const V *p = lanes32(w, o, 0, 0);
    Q r[8];
    for (u32 i = 0; i < w.chunks; i++) r[i] = (Q)__builtin_convertvector((VI)p[i], QF);
    put_f64(w, o, r);
}
OP(v_cvt_f64_u32) {
    begin(w);
    const V *p = lanes32(w, o, 0, 0);
    Q r[8];
    for (u32 i = 0; i < w.chunks; i++) r[i] = (Q)__builtin_convertvector(__builtin_convertvector(p[i], QI), QF);
    put_f64(w, o, r);
}
OP(v_cvt_f32_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    write_f32(w, o, [&](u32 i) { return __builtin_convertvector((QF)p[i], VF); }, o.dst[0].reg);
}
OP(v_cvt_i32_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    write_u32(w, o, [&](u32 i) {
        VI r;
        for (int l = 0; l < 8; l++) { double x = ((QF)p[i])[l]; r[l] = isnan(x) ? 0 : x >= 2147483647.0 ? 0x7fffffff : x <= -2147483648.0 ? (i32)0x80000000 : (i32)x; }
        return r;
    }, o.dst[0].reg);
}
OP(v_cvt_u32_f64) {
    begin(w);
    Q p[8];
    lanes_f64(w, o, 0, p);
    write_u32(w, o, [&](u32 i) {
        V r;
        for (int l = 0; l < 8; l++) { double x = ((QF)p[i])[l]; r[l] = isnan(x) || x <= 0 ? 0 : x >= 4294967295.0 ? ~0u : (u32)x; }
        return r;
    }, o.dst[0].reg);
}

// ---------------------------------------------------------------- lanes

OP(v_mbcnt_lo_u32_b32) {
    begin(w);
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    V r[8];
    for (u32 l = 0; l < w.lanes; l++) {
        u32 below = l >= 32 ? ~0u : (1u << l) - 1;
        ((u32 *)r)[l] = (u32)__builtin_popcount(((const u32 *)p)[l] & below) + ((const u32 *)q)[l];
    }
    put(w, o, r, o.dst[0].reg);
}
OP(v_mbcnt_hi_u32_b32) {
    begin(w);
    const V *p = lanes32(w, o, 0, 0), *q = lanes32(w, o, 1, 1);
    V r[8];
    for (u32 l = 0; l < w.lanes; l++) {
        u32 below = l < 32 ? 0 : (1u << (l - 32)) - 1;
        ((u32 *)r)[l] = (u32)__builtin_popcount(((const u32 *)p)[l] & below) + ((const u32 *)q)[l];
    }
    put(w, o, r, o.dst[0].reg);
}
OP(v_readfirstlane_b32) {
    w.undefined = 0;
    u64 on = exec(w);
    u32 lane = on ? (u32)__builtin_ctzll(on) : 0, reg = o.src[0].reg;
    if (o.src[0].kind != VGPR) return put32(w, o, s32(w, o, 0));
    use_v(w, o, reg);
    w.undefined = (w.undefined >> lane) & 1;
    put32(w, o, ((u32 *)w.v[reg].c)[lane]);
    if (__builtin_expect(w.undefined != 0, 0)) put_scalar_bits(w, o, ((u32 *)w.v[reg].c)[lane], undefined_word(w, reg, lane));
}
OP(v_readlane_b32) {
    w.undefined = 0;
    u32 lane = s32(w, o, 1) & (w.lanes - 1), reg = o.src[0].reg;
    u64 before = w.undefined;
    use_v(w, o, reg);
    w.undefined = before | ((w.undefined >> lane) & 1);
    put32(w, o, ((u32 *)w.v[reg].c)[lane]);
    if (__builtin_expect(w.undefined != 0 && !before, 0)) put_scalar_bits(w, o, ((u32 *)w.v[reg].c)[lane], undefined_word(w, reg, lane));
}
OP(v_writelane_b32) {
    w.undefined = 0;
    u32 x = s32(w, o, 0), lane = s32(w, o, 1) & (w.lanes - 1);
    w.active = 1ull << lane;
    claim(w, o, o.dst[0].reg);
    ((u32 *)w.v[o.dst[0].reg].c)[lane] = x;
}
// Registers by number: M0 is added to that of the result (d) or of the source (s).
INLINE bool indexed(Wave &w, const Op &o, u32 &reg) {
    if (!w.s_defined[M0]) { fail(w, o, LAUNCH_ERROR, "the number of a register depends on a register that was never written"); return false; }
    reg += w.s[M0];
    if (reg >= w.kernel->vgprs) { fail(w, o, OUT_OF_BOUNDS, "a register of number %u, of %u", reg, w.kernel->vgprs); return false; }
    return true;
}
COLD static void move_bits(Wave &w, const Op &o, const V *p, Row &bits, u32 reg) {
    Row x;
    memcpy(x.c, p, sizeof(V) * w.chunks);
    put_bits(w, o, x.c, bits, reg);
}
OP(v_movreld_b32) {
    begin(w);
    u32 to = o.dst[0].reg;
    if (!indexed(w, o, to)) return;
    const V *p = lanes32(w, o, 0, 0);
    Row bits;
    if (!any_undefined(w)) return put(w, o, p, to);
    undefined_bits(w, o, 0, bits);
    move_bits(w, o, p, bits, to);
}
OP(v_movrels_b32) {
    begin(w);
    u32 from = o.src[0].reg;
    if (!indexed(w, o, from)) return;
    use_v(w, o, from);
    Row bits;
    if (!any_undefined(w)) return put(w, o, w.v[from].c, o.dst[0].reg);
    undefined_row(w, from, (u32 *)bits.c);
    move_bits(w, o, w.v[from].c, bits, o.dst[0].reg);
}
OP(v_swap_b32) {
    begin(w);
    u32 a = o.dst[0].reg, b = o.src[0].reg;
    use_v(w, o, a);
    use_v(w, o, b);
    Row x = w.v[a], y = w.v[b], ux, uy;
    if (!any_undefined(w)) { put(w, o, y.c, a); return put(w, o, x.c, b); }
    undefined_row(w, a, (u32 *)ux.c);
    undefined_row(w, b, (u32 *)uy.c);
    put_bits(w, o, y.c, uy, a);
    put_bits(w, o, x.c, ux, b);
}
OP(v_nop) {}
