// Conversions of 8-bit floats: FNUZ on gfx942, OCP's on gfx950 (flag 4 of the micro-op).
#pragma once
#include "valu_16.h"

static double small_float(u32 x, int exponent_bits, int mantissa_bits, bool fnuz) {
    int e = (x >> mantissa_bits) & ((1 << exponent_bits) - 1), m = x & ((1 << mantissa_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1 + fnuz;
    double sign = x >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
    if (fnuz && x == 0x80) return NAN;
    if (!fnuz && exponent_bits + mantissa_bits == 7) { // those of 6 and 4 bits have no NaN and no infinity
        if (exponent_bits == 5 && e == 31) return m ? NAN : sign * INFINITY;
        if (exponent_bits == 4 && (x & 0x7f) == 0x7f) return NAN;
    }
    double v = e ? 1 + (double)m / (1 << mantissa_bits) : (double)m / (1 << mantissa_bits);
    return sign * ldexp(v, (e ? e : 1) - bias);
}
// The code of the nearest value, to even where two are as near. What is too large becomes infinity, or NaN in forms
// without; the largest where MODE.FP16_OVFL is set.
static u32 small_code(float x, int exponent_bits, int mantissa_bits, bool fnuz, bool largest_instead) {
    u32 sign = signbit(x) ? 0x80 : 0, largest = fnuz ? 0x7f : exponent_bits == 4 ? 0x7e : 0x7b;
    u32 nan = fnuz ? 0x80 : 0x7f | sign, beyond = !fnuz && exponent_bits == 5 ? 0x7c | sign : nan;
    if (isnan(x)) return nan;
    if (isinf(x)) return largest_instead ? largest | sign : beyond;
    int least = 1 - ((1 << (exponent_bits - 1)) - 1 + fnuz), exponent; // the exponent of the smallest normal number
    frexp((double)x, &exponent);
    exponent = x == 0 || exponent - 1 < least ? least : exponent - 1;
    double steps = nearbyint(ldexp(fabs((double)x), mantissa_bits - exponent)); // of the last place, to even
    u64 code = (u64)steps + ((u64)(exponent - least) << mantissa_bits); // a carry goes into the exponent
    if (code > largest) return largest_instead ? largest | sign : beyond;
    return (u32)code | (fnuz && !code ? 0 : sign);
}
template <int EXPONENT> INLINE void to_8(Wave &w, const Op &o) { // two codes to one half; the other half stays
    begin(w);
    const V *p = lanes_f32(w, o, 0, 0), *q = lanes_f32(w, o, 1, 1);
    u32 reg = o.dst[0].reg, up = (o.op_sel >> 3) & 1, kept = up ? 0xffffu : 0xffff0000u;
    bool clamps = (w.mode >> 23) & 1, fnuz = o.flags & 4;
    V r[8];
    for (u32 c = 0; c < w.chunks; c++)
        for (int l = 0; l < 8; l++) {
            u32 low = small_code(((VF)p[c])[l], EXPONENT, 7 - EXPONENT, fnuz, clamps);
            u32 high = small_code(((VF)q[c])[l], EXPONENT, 7 - EXPONENT, fnuz, clamps);
            r[c][l] = (low | high << 8) << (16 * up) | (w.v[reg].c[c][l] & kept);
        }
    if (__builtin_expect(((w.undefined | ~w.v_defined[reg]) & w.active) != 0, 0)) return put_beside(w, o, r, reg, ~kept, kept);
    put(w, o, r, reg);
}
template <int EXPONENT> INLINE void from_8(Wave &w, const Op &o, u32 count) {
    begin(w);
    const V *p = lanes32(w, o, 0, 0);
    V r[2][8];
    for (u32 i = 0; i < count; i++)
        for (u32 c = 0; c < w.chunks; c++)
            for (int l = 0; l < 8; l++) {
                float x = (float)small_float((p[c][l] >> (8 * i)) & 255, EXPONENT, 7 - EXPONENT, o.flags & 4);
                u32 word;
                memcpy(&word, &x, 4);
                r[i][c][l] = word;
            }
    for (u32 i = 0; i < count; i++) put(w, o, r[i], o.dst[0].reg + i);
}
OP(v_cvt_pk_fp8_f32) { to_8<4>(w, o); }
OP(v_cvt_pk_bf8_f32) { to_8<5>(w, o); }
OP(v_cvt_f32_fp8) { from_8<4>(w, o, 1); }
OP(v_cvt_f32_bf8) { from_8<5>(w, o, 1); }
OP(v_cvt_pk_f32_fp8) { from_8<4>(w, o, 2); }
OP(v_cvt_pk_f32_bf8) { from_8<5>(w, o, 2); }
