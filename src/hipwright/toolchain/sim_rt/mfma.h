// Matrix instructions. The layouts are those of toolchain/cpu_rt/mfma.c: with KL = K * M * blocks / 64 consecutive k of
// one lane, A[b][i][k] is element k mod KL of lane i + M * (b + blocks * (k / KL)), B the same with j.
#pragma once
#include "lds.h"
#include "valu_8.h"

enum { E_F32, E_F16, E_BF16, E_I8, E_F64, E_FP8, E_BF8, E_XF32, E_FP6, E_BF6, E_FP4 };
enum { SCALED = 4, INTERLEAVED = 8 };

// Some bits of a lane's registers, counted from the first register's lowest.
static u32 bits(const Wave &w, u32 reg, u32 lane, u32 at, u32 count) {
    u64 both = word(w, reg + at / 32, lane);
    if (at % 32 + count > 32) both |= (u64)word(w, reg + at / 32 + 1, lane) << 32;
    return (u32)(both >> (at % 32)) & ((1u << count) - 1);
}
static double element(const Wave &w, u32 reg, u32 lane, u32 n, u32 type, bool fnuz) {
    u32 x;
    switch (type) {
    case E_F16: { u16 u = (u16)(word(w, reg + n / 2, lane) >> (16 * (n & 1))); _Float16 h; memcpy(&h, &u, 2); return (double)h; }
    case E_BF16: return (double)as_float((word(w, reg + n / 2, lane) >> (16 * (n & 1))) << 16);
    case E_I8: return (double)(int8_t)(word(w, reg + n / 4, lane) >> (8 * (n & 3)));
    case E_FP8: return small_float((word(w, reg + n / 4, lane) >> (8 * (n & 3))) & 255, 4, 3, fnuz);
    case E_BF8: return small_float((word(w, reg + n / 4, lane) >> (8 * (n & 3))) & 255, 5, 2, fnuz);
    case E_FP6: return small_float(bits(w, reg, lane, 6 * n, 6), 2, 3, false);
    case E_BF6: return small_float(bits(w, reg, lane, 6 * n, 6), 3, 2, false);
    case E_FP4: return small_float(bits(w, reg, lane, 4 * n, 4), 2, 1, false);
    case E_F64: { u64 u = word(w, reg + 2 * n, lane) | (u64)word(w, reg + 2 * n + 1, lane) << 32; double d; memcpy(&d, &u, 8); return d; }
    case E_XF32: x = word(w, reg + n, lane); x = (x + 0xfff + ((x >> 13) & 1)) & ~0x1fffu; return (double)as_float(x);
    }
    return (double)as_float(word(w, reg + n, lane));
}
// The scale of 32 elements of k (E8M0, 0xff is NaN): a byte of the lane that has the row, the block-th 32 of k.
static double scale(Wave &w, const Op &o, const Src &s, u32 m, u32 i, u32 block, u32 byte) {
    u32 x = s.kind == VGPR ? word(w, s.reg, i + m * block) : s.kind == SGPR ? w.s[s.reg] : (u32)s.value;
    x = x >> (8 * byte) & 255;
    return x == 255 ? NAN : ldexp(1, (int)x - 127);
}
// extra: M | K << 8 | blocks << 16; data: type of A | of B << 4 | integer or float64 sums << 8; flags & 4: FNUZ.
// Scaled: src[3] and dst[1] hold scales of A and B, target which of their bytes counts; products are scaled, then added.
OP(mfma) {
    begin(w);
    if (w.active != w.all || w.lanes != 64) return fail(w, o, UNSUPPORTED, "a matrix instruction while lanes are inactive");
    u32 m = o.extra & 255, k = (o.extra >> 8) & 255, blocks = o.extra >> 16, ta = o.data & 15, tb = (o.data >> 4) & 15, sums = o.data >> 8 & 3;
    bool scaled = o.data >> 8 & SCALED, interleaved = o.data >> 8 & INTERLEAVED;
    u32 kl = k * m * blocks / 64, items = m * m * blocks / 64, width = sums == 2 ? 2 : 1;
    const u32 width_of[] = {32, 16, 16, 8, 64, 8, 8, 32, 6, 6, 4};
    u32 words_a = (kl * width_of[ta] + 31) / 32, words_b = (kl * width_of[tb] + 31) / 32;
    if (scaled && o.src[3].kind == VGPR) use_v(w, o, o.src[3].reg);
    if (scaled && o.dst[1].kind == VGPR) use_v(w, o, o.dst[1].reg);
    for (u32 i = 0; i < words_a; i++) use_v(w, o, o.src[0].reg + i);
    for (u32 i = 0; i < words_b; i++) use_v(w, o, o.src[1].reg + i);
    if (o.src[2].kind == VGPR) for (u32 i = 0; i < items * width; i++) use_v(w, o, o.src[2].reg + i);
    if (w.undefined & w.active) w.undefined = ~0ull; // one undefined element reaches a row of results
    bool fnuz = o.flags & 4;
    static double a[32 * 128], b[128 * 32];
    Row out[64];
    for (u32 block = 0; block < blocks; block++) {
        for (u32 i = 0; i < m; i++)
            for (u32 kk = 0; kk < k; kk++) {
                u32 run = kk / kl, n = kk % kl;
                if (interleaved) { run = kk % (k / 2) / 16; n = kk / (k / 2) * 16 + kk % 16; }
                u32 lane = i + m * (block + blocks * run);
                a[i * k + kk] = element(w, o.src[0].reg, lane, n, ta, fnuz);
                b[kk * m + i] = element(w, o.src[1].reg, lane, n, tb, fnuz);
                if (!scaled) continue;
                a[i * k + kk] *= scale(w, o, o.src[3], m, i, kk / 32, o.target & 3);
                b[kk * m + i] *= scale(w, o, o.dst[1], m, i, kk / 32, o.target >> 2 & 3);
            }
        for (u32 i = 0; i < m; i++)
            for (u32 j = 0; j < m; j++) {
                u32 lane, item;
                if (sums == 2 && m == 16) { lane = 16 * (i % 4) + j; item = i / 4; }
                else if (m == 4) { lane = sums == 2 ? 16 * (i % 4) + 4 * block + j : 4 * block + j; item = sums == 2 ? 0 : i; }
                else if (m == 16) { lane = 16 * (i / 4) + j; item = i % 4 + 4 * block; }
                else { lane = (32 * (i / 4)) % 64 + j; item = 4 * (i / 8) + i % 4 + 16 * block; }
                u32 c = o.src[2].kind == VGPR ? 0 : (u32)o.src[2].value;
                if (sums == 2) {
                    u64 u = o.src[2].kind == VGPR ? word(w, o.src[2].reg + 2 * item, lane) | (u64)word(w, o.src[2].reg + 2 * item + 1, lane) << 32 : o.src[2].value;
                    double s;
                    memcpy(&s, &u, 8);
                    for (u32 kk = 0; kk < k; kk++) s = fma(a[i * k + kk], b[kk * m + j], s);
                    memcpy(&u, &s, 8);
                    ((u32 *)out[2 * item].c)[lane] = (u32)u;
                    ((u32 *)out[2 * item + 1].c)[lane] = (u32)(u >> 32);
                    continue;
                }
                if (o.src[2].kind == VGPR) c = word(w, o.src[2].reg + item, lane);
                if (sums == 1) {
                    u32 s = c;
                    for (u32 kk = 0; kk < k; kk++) s += (u32)(i32)(a[i * k + kk] * b[kk * m + j]);
                    ((u32 *)out[item].c)[lane] = s;
                } else {
                    float s = as_float(c);
                    for (u32 kk = 0; kk < k; kk++) s = (float)(s + a[i * k + kk] * b[kk * m + j]);
                    ((u32 *)out[item].c)[lane] = as_word(s);
                }
            }
    }
    for (u32 i = 0; i < items * width; i++) put(w, o, out[i].c, o.dst[0].reg + i);
}

// Waves of 32: lane l and lane l + 16 hold row (column) l mod 16 of A (B), k in order; D has row 2 r + l / 16 in register r.
OP(wmma) {
    begin(w);
    if (w.active != w.all || w.lanes != 32) return fail(w, o, UNSUPPORTED, "a matrix instruction while lanes are inactive, or in a wave of 64");
    u32 type = o.data & 15, sums = o.data >> 8, words = type == E_I8 ? 4 : 8;
    for (u32 i = 0; i < words; i++) { use_v(w, o, o.src[0].reg + i); use_v(w, o, o.src[1].reg + i); }
    if (o.src[2].kind == VGPR) for (u32 i = 0; i < 8; i++) use_v(w, o, o.src[2].reg + i);
    if (w.undefined & w.active) w.undefined = ~0ull;
    Row out[8];
    for (u32 r = 0; r < 8; r++)
        for (u32 lane = 0; lane < 32; lane++) {
            u32 i = 2 * r + lane / 16, j = lane % 16, c = o.src[2].kind == VGPR ? word(w, o.src[2].reg + r, lane) : (u32)o.src[2].value;
            if (sums == 1) {
                u32 s = c;
                for (u32 k = 0; k < 16; k++) s += (u32)(i32)(element(w, o.src[0].reg, i, k, type, false) * element(w, o.src[1].reg, j, k, type, false));
                ((u32 *)out[r].c)[lane] = s;
            } else {
                float s = as_float(c);
                for (u32 k = 0; k < 16; k++) s = (float)(s + element(w, o.src[0].reg, i, k, type, false) * element(w, o.src[1].reg, j, k, type, false));
                ((u32 *)out[r].c)[lane] = as_word(s);
            }
        }
    for (u32 r = 0; r < 8; r++) put(w, o, out[r].c, o.dst[0].reg + r);
}
