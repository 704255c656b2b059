// Reading operands and writing results, with what is undefined and what is still in flight.
#pragma once
#include "sim.h"

// ---------------------------------------------------------------- scoreboard

COLD static void unwaited(Wave &w, const Op &o, char kind, u32 reg, const char *how) {
    u32 line = 0;
    for (u32 i = 0; i < w.outstanding; i++) {
        const Pending &p = w.queue[i];
        if (p.scalar == (kind == 's') && reg >= p.reg && reg < (u32)p.reg + p.count) line = p.line;
    }
    fail(w, o, LAUNCH_ERROR, "%c%u is %s before the wait for the load of assembly line %u", kind, reg, how, line);
}
INLINE void use_v(Wave &w, const Op &o, u32 reg) {
    if (__builtin_expect(w.v_pending[reg], 0)) unwaited(w, o, 'v', reg, "read");
    w.undefined |= ~w.v_defined[reg];
}
INLINE void use_s(Wave &w, const Op &o, u32 reg) {
    if (__builtin_expect(w.s_pending[reg], 0)) unwaited(w, o, 's', reg, "read");
    if (__builtin_expect(!w.s_defined[reg], 0)) w.undefined = ~0ull;
}
INLINE void set_s(Wave &w, const Op &o, u32 reg, u32 value, bool defined) {
    if (__builtin_expect(w.s_pending[reg], 0)) unwaited(w, o, 's', reg, "overwritten");
    w.s[reg] = value;
    w.s_defined[reg] = defined;
    w.s_bits[reg] = defined ? 0 : ~0u;
    w.s_lanes[reg] = 0;
}

// ---------------------------------------------------------------- scalar operands

INLINE u32 s32(Wave &w, const Op &o, int k) {
    const Src &s = o.src[k];
    if (s.kind == SGPR) { use_s(w, o, s.reg); return w.s[s.reg]; }
    if (s.kind == SCC) { if (!w.scc_defined) w.undefined = ~0ull; return w.scc; }
    return (u32)s.value;
}
INLINE u64 s64(Wave &w, const Op &o, int k) {
    const Src &s = o.src[k];
    if (s.kind == SGPR) { use_s(w, o, s.reg); use_s(w, o, s.reg + 1); return pair(w, s.reg); }
    if (s.kind == SCC) { if (!w.scc_defined) w.undefined = ~0ull; return w.scc; }
    return s.value;
}
INLINE void put32(Wave &w, const Op &o, u32 value, int k = 0) {
    if (o.dst[k].kind == SGPR) set_s(w, o, o.dst[k].reg, value, !w.undefined);
}
INLINE void put64(Wave &w, const Op &o, u64 value, int k = 0) {
    if (o.dst[k].kind != SGPR) return;
    set_s(w, o, o.dst[k].reg, (u32)value, !w.undefined);
    set_s(w, o, o.dst[k].reg + 1, (u32)(value >> 32), !w.undefined);
}
INLINE void put_scc(Wave &w, bool value) { w.scc = value; w.scc_defined = !w.undefined; }
// A mask of lanes in scalar registers: one register in waves of 32, two in waves of 64.
INLINE u64 mask_at(Wave &w, const Op &o, u32 reg) {
    use_s(w, o, reg);
    if (w.lanes == 32) return w.s[reg];
    use_s(w, o, reg + 1);
    return pair(w, reg);
}
// The same for an instruction whose lanes each use their own bit.
INLINE u64 lanes_of(Wave &w, const Op &o, u32 reg) {
    u64 mask = mask_at(w, o, reg);
    w.undefined |= w.s_lanes[reg];
    return mask;
}
// The undefined lanes of a scalar operand, and of what an operation makes of two: a known 0 decides AND, a known 1 OR.
INLINE u64 unknown(const Wave &w, const Src &s) { return s.kind == SGPR ? w.s_lanes[s.reg] : 0; }
INLINE u64 unknown_and(u64 a, u64 ua, u64 b, u64 ub) { return (ua | ub) & (a | ua) & (b | ub); }
INLINE u64 unknown_or(u64 a, u64 ua, u64 b, u64 ub) { return (ua | ub) & (~a | ua) & (~b | ub); }
INLINE void put_mask(Wave &w, const Op &o, u32 reg, u64 mask) {
    set_s(w, o, reg, (u32)mask, true);
    if (w.lanes == 64) set_s(w, o, reg + 1, (u32)(mask >> 32), true);
}
COLD static void name_unknowns(Wave &w, u32 reg, u64 lanes);
// The mask that a vector instruction makes.
INLINE void put_lanes(Wave &w, const Op &o, u32 reg, u64 mask, u64 undefined_lanes = 0) {
    if (__builtin_expect((undefined_lanes | w.s_lanes[EXEC]) != 0, 0)) {
        name_unknowns(w, reg, undefined_lanes);
        u64 unknown = w.s_lanes[reg];
        put_mask(w, o, reg, mask);
        w.s_lanes[reg] = unknown;
        return;
    }
    put_mask(w, o, reg, mask);
}
INLINE void need_defined(Wave &w, const Op &o, const char *what) {
    if (__builtin_expect(w.undefined != 0, 0)) fail(w, o, LAUNCH_ERROR, "%s depends on a register that was never written", what);
}

// ---------------------------------------------------------------- vector operands

INLINE V broadcast(u32 x) { return (V){x, x, x, x, x, x, x, x}; }
INLINE V expand(u32 bits) { // eight bits to eight lanes of all ones or zeros
    const V one = {1, 2, 4, 8, 16, 32, 64, 128};
    return (V)((broadcast(bits) & one) != 0);
}
INLINE u32 gather_bits(V mask) {
#ifdef __x86_64__
    return (u32)__builtin_ia32_movmskps256((VF)mask);
#else
    u32 bits = 0;
    for (int i = 0; i < 8; i++) bits |= (mask[i] >> 31) << i;
    return bits;
#endif
}
COLD static const V *selected(Wave &w, const Op &o, int k, const V *p, int t);
COLD static const V *permuted(Wave &w, const Op &o, const V *p, int t);

// The lanes of a 32-bit operand, `more` registers behind its first.
INLINE const V *lanes32(Wave &w, const Op &o, int k, int t, u32 more = 0) {
    const Src &s = o.src[k];
    const V *p;
    if (__builtin_expect(s.kind == VGPR, 1)) {
        use_v(w, o, s.reg + more);
        p = w.v[s.reg + more].c;
    } else if (s.kind == LITERAL) {
        p = s.row[more].c;
    } else {
        V x;
        if (s.kind == SGPR) { use_s(w, o, s.reg + more); x = broadcast(w.s[s.reg + more]); }
        else x = broadcast(s32(w, o, k));
        for (int c = 0; c < 8; c++) w.t[t].c[c] = x;
        p = w.t[t].c;
    }
    if (__builtin_expect(s.sel | (o.dpp && k == 0), 0)) {
        if (o.dpp && k == 0) p = permuted(w, o, p, t);
        if (s.sel) p = selected(w, o, k, p, t);
    }
    return p;
}
INLINE const V *signs(Wave &w, const Op &o, int k, const V *p, int t, u32 bit) {
    u32 mods = o.src[k].mods;
    if (__builtin_expect(mods & (NEG | ABS), 0)) {
        V keep = broadcast(mods & ABS ? ~bit : ~0u), flip = broadcast(mods & NEG ? bit : 0);
        for (int c = 0; c < 8; c++) w.t[t].c[c] = (p[c] & keep) ^ flip;
        return w.t[t].c;
    }
    return p;
}
INLINE const V *lanes_f32(Wave &w, const Op &o, int k, int t) { return signs(w, o, k, lanes32(w, o, k, t), t, 0x80000000u); }
// The low halves are those that count; op_sel may choose the high ones.
INLINE const V *lanes_f16(Wave &w, const Op &o, int k, int t) {
    const V *p = lanes32(w, o, k, t);
    if (__builtin_expect((o.op_sel >> k) & 1, 0)) {
        for (int c = 0; c < 8; c++) w.t[t].c[c] = p[c] >> 16;
        p = w.t[t].c;
    }
    return signs(w, o, k, p, t, 0x8000);
}
INLINE void lanes64(Wave &w, const Op &o, int k, Q *out, int t = 0) {
    const Src &s = o.src[k];
    if (s.kind == VGPR) {
        const V *lo = lanes32(w, o, k, t), *hi = lanes32(w, o, k, t + 1, 1);
        for (u32 c = 0; c < w.chunks; c++)
            out[c] = __builtin_convertvector(lo[c], Q) | (__builtin_convertvector(hi[c], Q) << 32);
    } else {
        u64 x = s64(w, o, k);
        for (u32 c = 0; c < w.chunks; c++) out[c] = (Q){x, x, x, x, x, x, x, x};
    }
}
INLINE void lanes_f64(Wave &w, const Op &o, int k, Q *out) {
    lanes64(w, o, k, out);
    u32 mods = o.src[k].mods;
    if (mods & ABS) for (u32 c = 0; c < w.chunks; c++) out[c] &= ~(1ull << 63);
    if (mods & NEG) for (u32 c = 0; c < w.chunks; c++) out[c] ^= 1ull << 63;
}

// ---------------------------------------------------------------- results

// What lanes do whose place in EXEC is undefined is undefined too.
INLINE void begin(Wave &w) { w.undefined = w.s_lanes[EXEC]; w.active = exec(w); }
static void make_mask(Wave &w) {
    for (int c = 0; c < 8; c++) w.mask.c[c] = expand((w.active >> (8 * c)) & 255);
    w.mask_of = w.active;
}
INLINE void claim(Wave &w, const Op &o, u32 reg) { // a register is written
    if (__builtin_expect(w.v_pending[reg], 0)) unwaited(w, o, 'v', reg, "overwritten");
    w.v_defined[reg] = (w.v_defined[reg] & ~w.active) | (w.active & ~w.undefined);
    if (__builtin_expect((w.undefined & w.active) != 0, 0)) w.v_partial[reg] &= ~w.active;
}
COLD static void write_part(Wave &w, const Op &o, const V *r, V *d);
// Write a result to the active lanes of a register.
INLINE void put(Wave &w, const Op &o, const V *r, u32 reg) {
    V *d = w.v[reg].c;
    claim(w, o, reg);
    if (__builtin_expect(o.dst_sel, 0)) return write_part(w, o, r, d);
    if (w.active == w.all) {
        for (u32 c = 0; c < w.chunks; c++) d[c] = r[c];
    } else {
        if (w.mask_of != w.active) make_mask(w);
        for (u32 c = 0; c < w.chunks; c++) d[c] = (r[c] & w.mask.c[c]) | (d[c] & ~w.mask.c[c]);
    }
}
// What is undefined in the low and in the high word of the sources: a low result of sums needs low words only.
struct Unknown { u64 low, high; };
INLINE void note_words(Wave &w, const Op &o, int k, Unknown &u) {
    const Src &s = o.src[k];
    if (s.kind == VGPR) { u.low |= ~w.v_defined[s.reg]; u.high |= ~w.v_defined[s.reg + 1]; }
    if (s.kind == SGPR) { if (!w.s_defined[s.reg]) u.low = ~0ull; if (!w.s_defined[s.reg + 1]) u.high = ~0ull; }
}
INLINE void put_words(Wave &w, const Op &o, const Q *r, Unknown u, bool carries) {
    V lo[8], hi[8];
    for (u32 c = 0; c < w.chunks; c++) {
        lo[c] = __builtin_convertvector(r[c], V);
        hi[c] = __builtin_convertvector(r[c] >> 32, V);
    }
    w.undefined = u.low | w.s_lanes[EXEC];
    put(w, o, lo, o.dst[0].reg);
    w.undefined = u.high | (carries ? u.low : 0) | w.s_lanes[EXEC];
    put(w, o, hi, o.dst[0].reg + 1);
}
INLINE void put_q(Wave &w, const Op &o, const Q *r) {
    V lo[8], hi[8];
    for (u32 c = 0; c < w.chunks; c++) {
        lo[c] = __builtin_convertvector(r[c], V);
        hi[c] = __builtin_convertvector(r[c] >> 32, V);
    }
    put(w, o, lo, o.dst[0].reg);
    put(w, o, hi, o.dst[0].reg + 1);
}
COLD static void scale_f32(const Op &o, V *r) {
    const VF factor[] = {(VF)broadcast(0x3f800000), (VF)broadcast(0x40000000), (VF)broadcast(0x40800000), (VF)broadcast(0x3f000000)};
    for (int c = 0; c < 8; c++) {
        VF x = (VF)r[c];
        if (o.omod) x *= factor[o.omod];
        if (o.clamp) { // NaN becomes 0, as DX10_CLAMP says
            VF one = (VF)broadcast(0x3f800000);
            V above = (V)(x > one), positive = (V)(x > 0.f);
            x = (VF)((((V)x & ~above) | ((V)one & above)) & positive);
        }
        r[c] = (V)x;
    }
}
COLD static void scale_f64(const Op &o, Q *r) {
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < 8; i++) {
            double x = ((QF)r[c])[i];
            if (o.omod) x *= o.omod == 1 ? 2.0 : o.omod == 2 ? 4.0 : 0.5;
            if (o.clamp) x = x > 1 ? 1 : x > 0 ? x : 0;
            memcpy((char *)&r[c] + 8 * i, &x, 8);
        }
}
template <class F> INLINE void write_f32(Wave &w, const Op &o, F f, u32 reg) { // f: the result of chunk c
    V *d = w.v[reg].c;
    if (__builtin_expect(w.active == w.all && !(o.omod | o.clamp | o.dst_sel), 1)) {
        claim(w, o, reg);
        for (u32 c = 0; c < w.chunks; c++) d[c] = (V)f(c);
        return;
    }
    V r[8];
    for (u32 c = 0; c < w.chunks; c++) r[c] = (V)f(c);
    if (o.omod | o.clamp) scale_f32(o, r);
    put(w, o, r, reg);
}
template <class F> INLINE void write_u32(Wave &w, const Op &o, F f, u32 reg) {
    V *d = w.v[reg].c;
    if (__builtin_expect(w.active == w.all && !o.dst_sel, 1)) {
        claim(w, o, reg);
        for (u32 c = 0; c < w.chunks; c++) d[c] = (V)f(c);
        return;
    }
    V r[8];
    for (u32 c = 0; c < w.chunks; c++) r[c] = (V)f(c);
    put(w, o, r, reg);
}

// ---------------------------------------------------------------- SDWA and DPP

COLD static const V *selected(Wave &w, const Op &o, int k, const V *p, int t) {
    u32 sel = o.src[k].sel, shift = sel <= 4 ? 8 * (sel - 1) : 16 * (sel - 5), bits = sel <= 4 ? 8 : 16;
    Row &r = w.t[t];
    for (int c = 0; c < 8; c++) {
        V x = p[c] << (32 - bits - shift);
        r.c[c] = o.src[k].mods & SEXT ? (V)((VI)x >> (int)(32 - bits)) : x >> (32 - bits);
    }
    return r.c;
}
COLD static void write_part(Wave &w, const Op &o, const V *r, V *d) {
    u32 sel = o.dst_sel, shift = sel <= 4 ? 8 * (sel - 1) : 16 * (sel - 5), bits = sel <= 4 ? 8 : 16;
    u32 mask = ((1u << bits) - 1) << shift;
    if (w.mask_of != w.active) make_mask(w);
    for (u32 c = 0; c < w.chunks; c++) {
        V x = (r[c] << shift) & mask; // dst_unused: 0 pad, 1 sign-extend, 2 preserve
        if (o.dst_unused == 1) x = (V)((VI)(r[c] << (32 - bits)) >> (int)(32 - bits - shift));
        if (o.dst_unused == 2) x |= d[c] & ~mask;
        d[c] = (x & w.mask.c[c]) | (d[c] & ~w.mask.c[c]);
    }
}
// The source lane of a lane under a DPP control, -1 without one.
static int dpp_source(const Op &o, int lane, int lanes) {
    u32 ctrl = o.dpp_ctrl, row = lane & ~15, at = lane & 15;
    if (o.dpp == DPP8) return (lane & ~7) | ((o.extra >> (3 * (lane & 7))) & 7);
    if (ctrl < 0x100) return (lane & ~3) | ((ctrl >> (2 * (lane & 3))) & 3);
    u32 n = ctrl & 15;
    switch (ctrl & 0x1f0) {
    case 0x100: return at + n < 16 ? (int)(lane + n) : -1; // row_shl
    case 0x110: return at >= n ? (int)(lane - n) : -1; // row_shr
    case 0x120: return row | ((at - n) & 15); // row_ror
    case 0x150: return row | n; // row_newbcast, row_share
    case 0x160: return lane ^ n; // row_xmask
    }
    switch (ctrl) {
    case 0x130: return lane + 1 < lanes ? lane + 1 : -1; // wave_shl:1
    case 0x134: return (lane + 1) % lanes; // wave_rol:1
    case 0x138: return lane - 1; // wave_shr:1
    case 0x13c: return (lane + lanes - 1) % lanes; // wave_ror:1
    case 0x140: return row | (15 - at); // row_mirror
    case 0x141: return (lane & ~7) | (7 - (lane & 7)); // row_half_mirror
    case 0x142: return row ? (int)row - 1 : -1; // row_bcast:15
    case 0x143: return lane >= 32 ? 31 : -1; // row_bcast:31
    }
    return -1;
}
COLD static const V *permuted(Wave &w, const Op &o, const V *p, int t) {
    Row out;
    u64 from = w.active, kept = 0;
    const u32 *in = (const u32 *)p;
    for (u32 lane = 0; lane < w.lanes; lane++) {
        int source = dpp_source(o, (int)lane, (int)w.lanes);
        bool rows = o.dpp == DPP8 || (((o.row_mask >> (lane / 16)) & 1) && ((o.bank_mask >> ((lane / 4) & 3)) & 1));
        bool valid = source >= 0 && (o.fetch_inactive || ((from >> source) & 1));
        ((u32 *)out.c)[lane] = valid ? in[source] : 0;
        if (rows && (valid || o.bound_ctrl)) kept |= 1ull << lane;
        if (valid && o.src[0].kind == VGPR && !((w.v_defined[o.src[0].reg] >> source) & 1)) w.undefined |= 1ull << lane;
    }
    if (o.src[0].kind == VGPR) { // undefined of the lanes themselves does not count
        u64 own = ~w.v_defined[o.src[0].reg];
        for (u32 lane = 0; lane < w.lanes; lane++) {
            int source = dpp_source(o, (int)lane, (int)w.lanes);
            if (((own >> lane) & 1) && (source < 0 || !((own >> source) & 1))) w.undefined &= ~(1ull << lane);
        }
    }
    w.active &= kept;
    w.t[t] = out;
    return w.t[t].c;
}
