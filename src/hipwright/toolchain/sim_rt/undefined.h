// Which bits of a vector register, and which bits of a mask, are undefined. Only where something undefined is used does
// any of this run: a register is defined in the lanes of v_defined. In another lane all of its bits are undefined, or,
// where v_partial has the lane, those of v_bits.
#pragma once
#include "core.h"

INLINE bool any_undefined(const Wave &w) { return __builtin_expect((w.undefined & w.active) != 0, 0); } // an active lane has undefined sources
enum { EXACT, UPWARD, MONOTONE }; // how a result depends on undefined bits: bit by bit, from the lowest on (carries), or whole, between its ends

// ---------------------------------------------------------------- bits of vector registers

static u32 undefined_word(const Wave &w, u32 reg, u32 lane) {
    if ((w.v_defined[reg] >> lane) & 1) return 0;
    return (w.v_partial[reg] >> lane) & 1 ? ((const u32 *)w.v_bits[reg].c)[lane] : ~0u;
}
COLD static void undefined_row(const Wave &w, u32 reg, u32 *out) {
    for (u32 l = 0; l < w.lanes; l++) out[l] = undefined_word(w, reg, l);
}
// The undefined bits of operand k as `lanes32` reads it, `more` registers behind its first.
COLD static void undefined_bits(Wave &w, const Op &o, int k, Row &out, u32 more = 0) {
    const Src &s = o.src[k];
    u32 *bits = (u32 *)out.c;
    memset(&out, 0, sizeof out);
    if (s.kind == VGPR) undefined_row(w, s.reg + more, bits);
    if (s.kind == SGPR || s.kind == SCC) {
        u32 x = s.kind == SCC ? (w.scc_defined ? 0 : ~0u) : w.s_defined[s.reg + more] ? 0 : w.s_bits[s.reg + more];
        for (u32 l = 0; l < w.lanes; l++) bits[l] = x;
    }
    if (o.dpp && k == 0) {
        Row own = out;
        for (u32 l = 0; l < w.lanes; l++) {
            int from = dpp_source(o, (int)l, (int)w.lanes);
            bits[l] = from < 0 ? 0 : ((const u32 *)own.c)[from];
        }
    }
    if (s.sel) {
        u32 shift = s.sel <= 4 ? 8 * (s.sel - 1) : 16 * (s.sel - 5), width = s.sel <= 4 ? 8 : 16;
        for (u32 l = 0; l < w.lanes; l++) {
            u32 x = bits[l] << (32 - width - shift);
            bits[l] = s.mods & SEXT ? (u32)((i32)x >> (32 - width)) : x >> (32 - width);
        }
    }
}
// The same of a scalar instruction's operand.
INLINE u32 scalar_bits(const Wave &w, const Op &o, int k) {
    const Src &s = o.src[k];
    if (s.kind == SCC) return w.scc_defined ? 0 : ~0u;
    return s.kind == SGPR && !w.s_defined[s.reg] ? w.s_bits[s.reg] : 0;
}
// A scalar result with its undefined bits; then w.undefined says whether it is known to be zero or not.
COLD static void put_scalar_bits(Wave &w, const Op &o, u32 value, u32 bits) {
    if (o.dst[0].kind == SGPR) {
        set_s(w, o, o.dst[0].reg, value, bits == 0);
        w.s_bits[o.dst[0].reg] = bits;
    }
    w.undefined = bits && !(value & ~bits) ? ~0ull : 0;
}
// A result with its undefined bits; bits: changed where the result reaches a part of the register.
COLD static void put_bits(Wave &w, const Op &o, const V *r, Row &bits, u32 reg) {
    u32 *u = (u32 *)bits.c;
    if (o.dst_sel) {
        u32 shift = o.dst_sel <= 4 ? 8 * (o.dst_sel - 1) : 16 * (o.dst_sel - 5), width = o.dst_sel <= 4 ? 8 : 16;
        u32 mask = ((1u << width) - 1) << shift;
        for (u32 l = 0; l < w.lanes; l++) {
            u32 x = (u[l] << shift) & mask;
            if (o.dst_unused == 1) x = (u32)((i32)(u[l] << (32 - width)) >> (32 - width - shift));
            if (o.dst_unused == 2) x |= undefined_word(w, reg, l) & ~mask;
            u[l] = x;
        }
    }
    u64 some = w.s_lanes[EXEC];
    for (u32 l = 0; l < w.lanes; l++) {
        if ((w.s_lanes[EXEC] >> l) & 1) u[l] = ~0u;
        if (u[l]) some |= 1ull << l;
    }
    w.undefined = some;
    put(w, o, r, reg);
    some &= w.active;
    w.v_partial[reg] |= some;
    for (u64 on = some; on; on &= on - 1) { u32 l = (u32)__builtin_ctzll(on); ((u32 *)w.v_bits[reg].c)[l] = u[l]; }
}
// The undefined bits of f's result. f reads n operands through the pointers *at; of an operand in `control` (one bit for
// each) the bits of `used` choose what happens to the others: an undefined one makes all undefined. The rest may be
// anything: f is evaluated at all corners, each operand's undefined bits all 0 or all 1. shift, mask: the part of each
// operand that f reads.
template <class F> COLD static void result_bits(Wave &w, const Op &o, F f, int n, const V ***at, u32 control, u32 used, int how,
                                                const u32 *shift, u32 mask, Row &bits) {
    Row given[3], u[3], row[3];
    u32 all[64] = {0};
    const V *kept[3];
    for (int k = 0; k < n; k++) {
        undefined_bits(w, o, k, u[k]);
        kept[k] = *at[k];
        memcpy(given[k].c, *at[k], sizeof(V) * w.chunks);
        for (u32 l = 0; l < w.lanes; l++) {
            u32 &x = ((u32 *)u[k].c)[l];
            x = (x >> shift[k]) & mask;
            if (o.clamp) { if (x) all[l] = ~0u; }
            else if ((control >> k) & 1) { if (x & used) all[l] = ~0u; x = 0; }
        }
        *at[k] = row[k].c;
    }
    V first[8];
    for (u32 corner = 0; corner < 1u << n; corner++)
        for (u32 c = 0; c < w.chunks; c++) {
            for (int k = 0; k < n; k++) row[k].c[c] = (corner >> k) & 1 ? given[k].c[c] | u[k].c[c] : given[k].c[c] & ~u[k].c[c];
            V x = (V)f(c);
            if (!corner) { first[c] = x; bits.c[c] = broadcast(0); }
            else bits.c[c] |= x ^ first[c];
        }
    for (int k = 0; k < n; k++) *at[k] = kept[k];
    for (u32 l = 0; l < w.lanes; l++) {
        u32 &x = ((u32 *)bits.c)[l];
        if (how == UPWARD) x |= 0 - x;
        if (how == MONOTONE && x) x = ~0u;
        x |= all[l];
    }
}
// A product and sum of 64 bits: the low word is undefined from the lowest undefined bit of the operands on.
COLD static void put_product(Wave &w, const Op &o, const Q *r, Unknown unknown) {
    Row bits, other[2];
    undefined_bits(w, o, 0, bits);
    undefined_bits(w, o, 1, other[0]);
    undefined_bits(w, o, 2, other[1]);
    V low[8], high[8];
    for (u32 c = 0; c < w.chunks; c++) {
        V x = bits.c[c] | other[0].c[c] | other[1].c[c];
        bits.c[c] = x | (0 - x);
        low[c] = __builtin_convertvector(r[c], V);
        high[c] = __builtin_convertvector(r[c] >> 32, V);
    }
    put_bits(w, o, low, bits, o.dst[0].reg);
    w.undefined = unknown.low | unknown.high | w.s_lanes[EXEC];
    put(w, o, high, o.dst[0].reg + 1);
}
static const u32 UNSHIFTED[3] = {0, 0, 0};
template <class F> COLD static void write_bits(Wave &w, const Op &o, F f, int n, const V **p, const V **q, const V **r, u32 control,
                                               u32 used, int how) {
    const V **at[3] = {p, q, r};
    Row bits;
    V made[8];
    result_bits(w, o, f, n, at, control, used, how, UNSHIFTED, ~0u, bits);
    for (u32 c = 0; c < w.chunks; c++) made[c] = (V)f(c);
    put_bits(w, o, made, bits, o.dst[0].reg);
}
// Lanes whose result is undefined where an instruction reads only some bits of its operands. masks: of each of n.
COLD static void reads_only(Wave &w, const Op &o, int n, const u32 *masks) {
    u64 lanes = w.s_lanes[EXEC];
    for (int k = 0; k < n; k++) {
        Row u;
        undefined_bits(w, o, k, u);
        for (u32 l = 0; l < w.lanes; l++) if (((const u32 *)u.c)[l] & masks[k]) lanes |= 1ull << l;
    }
    w.undefined = lanes;
}
INLINE void reads_bits(Wave &w, const Op &o, int n, u32 a, u32 b = 0, u32 c = 0) {
    if (any_undefined(w)) { const u32 masks[3] = {a, b, c}; reads_only(w, o, n, masks); }
}
INLINE u32 half_read(const Op &o, int k) { return (o.op_sel >> k) & 1 ? 0xffff0000u : 0xffffu; }
INLINE void reads_halves(Wave &w, const Op &o, int n) { reads_bits(w, o, n, half_read(o, 0), half_read(o, 1), half_read(o, 2)); }
// Writes a result of which `kept` bits are the register's own; w.undefined: lanes where the others (of `made`) are not defined.
COLD static void put_beside(Wave &w, const Op &o, const V *r, u32 reg, u32 made, u32 kept) {
    Row bits;
    for (u32 l = 0; l < 64; l++)
        ((u32 *)bits.c)[l] = l < w.lanes ? ((w.undefined >> l) & 1 ? made : 0) | (undefined_word(w, reg, l) & kept) : 0;
    put_bits(w, o, r, bits, reg);
}
// A load has written some bits of a register; the `kept` ones are as they were.
COLD static void loaded_beside(Wave &w, u32 reg, u32 kept) {
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), u = undefined_word(w, reg, l) & kept;
        if (!u) { w.v_defined[reg] |= 1ull << l; continue; }
        w.v_partial[reg] |= 1ull << l;
        ((u32 *)w.v_bits[reg].c)[l] = u;
    }
}

// ---------------------------------------------------------------- comparisons

enum { EQUAL, UNSIGNED, WITH_SIGN, WHOLE }; // how a comparison depends on undefined bits
// The lanes whose comparison is undefined. test(a, b): the result of two words. shift, mask: the part that is compared,
// sign: its highest bit. A difference in defined bits decides equality, the ends of what is possible an order.
template <class T> COLD static u64 undefined_compared(Wave &w, const Op &o, T test, const V *p, const V *q, int how, u32 mask, u32 sign) {
    Row u[2];
    u64 lanes = 0;
    for (int k = 0; k < 2; k++) {
        undefined_bits(w, o, k, u[k]);
        if (mask != ~0u) for (u32 l = 0; l < w.lanes; l++) { u32 &x = ((u32 *)u[k].c)[l]; x = (x >> ((o.op_sel >> k) & 1 ? 16 : 0)) & mask; }
    }
    for (u32 l = 0; l < w.lanes; l++) {
        u32 a = ((const u32 *)p)[l], b = ((const u32 *)q)[l], ua = ((u32 *)u[0].c)[l], ub = ((u32 *)u[1].c)[l];
        bool unclear = (ua | ub) != 0;
        if (unclear && how == EQUAL) unclear = ((a ^ b) & mask & ~(ua | ub)) == 0;
        if (unclear && (how == UNSIGNED || how == WITH_SIGN)) {
            u32 top = how == WITH_SIGN ? sign | ~mask : 0; // a negative number of fewer bits is extended
            auto low = [&](u32 x, u32 ux) { return (x & ~ux) | (ux & sign && how == WITH_SIGN ? top : 0); };
            auto high = [&](u32 x, u32 ux) { return ux & sign && how == WITH_SIGN ? (x | ux) & ~top : x | ux; };
            bool first = test(low(a, ua), low(b, ub));
            unclear = test(low(a, ua), high(b, ub)) != first || test(high(a, ua), low(b, ub)) != first || test(high(a, ua), high(b, ub)) != first;
        }
        if (unclear) lanes |= 1ull << l;
    }
    return lanes | w.s_lanes[EXEC];
}

// ---------------------------------------------------------------- masks

// The undefined bits of masks are functions of unknowns, as truth tables of six: two that comparisons of something
// undefined take in turns, and four for what becomes EXEC. s_and, s_or, ... combine the tables, so (E & x) | (E & ~x) is E
// again, as where branches meet. What depends on an unknown that is taken again is opaque: undefined, and nothing is known.
struct Tables { u64 of[128][64]; u64 opaque[128]; u8 turn[2][64]; };
static const u64 UNKNOWNS[6] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0, 0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000};
enum { COMPARED = 2 }; // the number of the first unknown of EXEC

static bool depends(u64 table, u32 unknown) {
    u64 one = UNKNOWNS[unknown];
    return ((table & one) >> (1u << unknown)) != (table & ~one);
}
static Tables &tables(Wave &w) {
    if (!w.tables) w.tables = (Tables *)calloc(1, sizeof(Tables));
    return *w.tables;
}
static u32 support(u64 table) { // the unknowns that a table depends on
    u32 used = 0;
    for (u32 i = 0; i < 6; i++) used |= (u32)depends(table, i) << i;
    return used;
}
// An unknown for a lane: one that no mask depends on, if there is one, else in turns, but none of EXEC.
static u64 fresh(Wave &w, u32 lane, bool of_exec) {
    Tables &t = tables(w);
    const u32 first = of_exec ? COMPARED : 0, count = of_exec ? 6 - COMPARED : COMPARED, range = ((1u << count) - 1) << first;
    u32 used = 0, now = (w.s_lanes[EXEC] & ~t.opaque[EXEC]) >> lane & 1 ? support(t.of[EXEC][lane]) : 0;
    for (u32 r = 0; r < 128; r++) if ((w.s_lanes[r] & ~t.opaque[r]) >> lane & 1) used |= support(t.of[r][lane]);
    u32 unknown = first;
    if (range & ~used) unknown = (u32)__builtin_ctz(range & ~used);
    else for (u32 i = 0; i < count; i++) {
        unknown = first + t.turn[of_exec][lane]++ % count;
        if (!((now >> unknown) & 1)) break;
    }
    if ((used >> unknown) & 1)
        for (u32 r = 0; r < 128; r++) if ((w.s_lanes[r] >> lane) & 1 && depends(t.of[r][lane], unknown)) t.opaque[r] |= 1ull << lane;
    return UNKNOWNS[unknown];
}
static void set_tables(Wave &w, u32 reg, u64 lanes, u64 opaque, const u64 *made) {
    Tables &t = tables(w);
    w.s_lanes[reg] = lanes;
    t.opaque[reg] = opaque & lanes;
    for (u64 on = lanes; on; on &= on - 1) { u32 l = (u32)__builtin_ctzll(on); t.of[reg][l] = made[l]; }
}
// A vector instruction's mask was written to a register: its undefined lanes, and those whose place in EXEC is undefined.
COLD static void name_unknowns(Wave &w, u32 reg, u64 lanes) {
    u64 made[64], opaque = 0, exec_lanes = w.s_lanes[EXEC], all = (lanes | exec_lanes) & w.all;
    u64 hidden = exec_lanes ? tables(w).opaque[EXEC] : 0;
    if (reg != EXEC) w.s_lanes[reg] = 0;
    for (u64 on = all; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        made[l] = fresh(w, l, reg == EXEC);
        if (!((exec_lanes >> l) & 1)) continue;
        if ((hidden >> l) & 1 || (tables(w).opaque[EXEC] >> l) & 1) opaque |= 1ull << l;
        else made[l] &= tables(w).of[EXEC][l];
    }
    set_tables(w, reg, all, opaque, made);
}
// The tables of a combination of two masks. combine: the operation, bit by bit; `old`: lanes that the plain rule leaves.
struct MaskSource { u64 bits, lanes; u32 reg; };
template <class F> COLD static void combine_tables(Wave &w, u32 to, MaskSource a, MaskSource b, u64 rule, F combine) {
    Tables &t = tables(w);
    u64 made[64], lanes = 0, opaque = 0, hidden = (a.lanes ? t.opaque[a.reg] & a.lanes : 0) | (b.lanes ? t.opaque[b.reg] & b.lanes : 0);
    for (u64 on = a.lanes | b.lanes; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        u64 x = (a.lanes >> l) & 1 ? t.of[a.reg][l] : (a.bits >> l) & 1 ? ~0ull : 0, y = (b.lanes >> l) & 1 ? t.of[b.reg][l] : (b.bits >> l) & 1 ? ~0ull : 0;
        made[l] = combine(x, y);
        if ((hidden >> l) & 1) { if ((rule >> l) & 1) { lanes |= 1ull << l; opaque |= 1ull << l; } continue; }
        if (made[l] != 0 && made[l] != ~0ull) lanes |= 1ull << l;
    }
    set_tables(w, to, lanes, opaque, made);
}
