// Scalar instructions.
#pragma once
#include "undefined.h"

#define S_OP(name, body) OP(name) { w.undefined = 0; body }
#define S32_2(name, expr, scc) S_OP(name, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); u32 r = (u32)(expr); put32(w, o, r); (void)a; (void)b; scc)
// The same where undefined bits of the operands, ua and ub, leave bits of the result defined.
#define S32_BITS(name, expr, bits, scc) S_OP(name, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); u32 r = (u32)(expr); \
    if (__builtin_expect(w.undefined != 0, 0)) { u32 ua = scalar_bits(w, o, 0); u32 ub = scalar_bits(w, o, 1); put_scalar_bits(w, o, r, (u32)(bits)); } \
    else put32(w, o, r); scc)
#define S32_SUM(name, expr, scc) S_OP(name, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); u32 r = (u32)(expr); \
    if (__builtin_expect(w.undefined != 0, 0)) { put_scalar_bits(w, o, r, ABOVE(scalar_bits(w, o, 0) | scalar_bits(w, o, 1))); w.undefined = ~0ull; } \
    else put32(w, o, r); scc)
#define ABOVE(x) ((x) | (0 - (x))) // of sums and products: the lowest undefined bit and all above
#define BY(x) (ub ? ~0u : (u32)(x)) // the second operand must be defined
#define S64_2(name, expr, scc) S_OP(name, u64 a = s64(w, o, 0); u64 b = s64(w, o, 1); u64 r = (u64)(expr); put64(w, o, r); (void)a; (void)b; scc)
#define S32_1(name, expr, scc) S_OP(name, u32 a = s32(w, o, 0); u32 r = (u32)(expr); put32(w, o, r); scc)
#define S64_1(name, expr, scc) S_OP(name, u64 a = s64(w, o, 0); u64 r = (u64)(expr); put64(w, o, r); scc)
#define S32_1_BITS(name, expr, bits, scc) S_OP(name, u32 a = s32(w, o, 0); u32 r = (u32)(expr); \
    if (__builtin_expect(w.undefined != 0, 0)) { u32 ua = scalar_bits(w, o, 0); put_scalar_bits(w, o, r, (u32)(bits)); } else put32(w, o, r); scc)
#define NO_SCC
#define NONZERO put_scc(w, r != 0);
S32_SUM(s_add_u32, a + b, put_scc(w, r < a);)
S32_SUM(s_sub_u32, a - b, put_scc(w, a < b);)
S32_SUM(s_add_i32, a + b, put_scc(w, (i32)((a ^ r) & (b ^ r)) < 0);)
S32_SUM(s_sub_i32, a - b, put_scc(w, (i32)((a ^ b) & (a ^ r)) < 0);)
S_OP(s_addc_u32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); if (!w.scc_defined) w.undefined = 1;
     u64 r = (u64)a + b + w.scc; put32(w, o, (u32)r); put_scc(w, (r >> 32) != 0);)
S_OP(s_subb_u32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); if (!w.scc_defined) w.undefined = 1;
     u64 r = (u64)a - b - w.scc; put32(w, o, (u32)r); put_scc(w, (r >> 32) != 0);)
S64_2(s_add_u64, a + b, NO_SCC)
S64_2(s_sub_u64, a - b, NO_SCC)
S32_BITS(s_mul_i32, a * b, ABOVE(ua | ub), NO_SCC)
S32_2(s_mul_hi_u32, ((u64)a * b) >> 32, NO_SCC)
S32_2(s_mul_hi_i32, ((i64)(i32)a * (i32)b) >> 32, NO_SCC)
S32_2(s_min_u32, a < b ? a : b, put_scc(w, a < b);)
S32_2(s_max_u32, a > b ? a : b, put_scc(w, a > b);)
S32_2(s_min_i32, (i32)a < (i32)b ? a : b, put_scc(w, (i32)a < (i32)b);)
S32_2(s_max_i32, (i32)a > (i32)b ? a : b, put_scc(w, (i32)a > (i32)b);)
// a, b: operands, ua, ub: their undefined lanes where they are masks; lanes: the undefined ones by their values alone
#define UNKNOWN(lanes, expr) if (__builtin_expect(ua | ub, 0) && o.dst[0].kind == SGPR) \
    combine_tables(w, o.dst[0].reg, {a, ua, o.src[0].reg}, {b, ub, o.src[1].reg}, lanes, [](u64 a, u64 b) { (void)a; (void)b; return (u64)(expr); });
// An operand of a logical operation, and its undefined lanes. A register that was never written and is combined with EXEC
// is a mask: clang keeps the lanes of one that are not active so (`s_andn2_b64 s[0:1], s[0:1], exec`).
template <class T> INLINE T mask_source(Wave &w, const Op &o, int k, u64 &lanes) {
    const Src &s = o.src[k], &other = o.src[1 - k];
    const bool two = sizeof(T) == 8, with_exec = other.kind == SGPR && other.reg == EXEC && two == (w.lanes == 64);
    if (__builtin_expect(s.kind == SGPR && with_exec && !(w.s_defined[s.reg] && (!two || w.s_defined[s.reg + 1])), 0)) {
        lanes = w.all;
        tables(w).opaque[s.reg] = w.all;
        return two ? (T)pair(w, s.reg) : (T)w.s[s.reg];
    }
    lanes = unknown(w, s);
    return two ? (T)s64(w, o, k) : (T)s32(w, o, k);
}
#define LOGIC(name, expr, lanes) \
    S_OP(s_##name##_b32, u64 ua; u64 ub; u32 a = mask_source<u32>(w, o, 0, ua); u32 b = mask_source<u32>(w, o, 1, ub); \
         u32 r = (u32)(expr); \
         if (__builtin_expect(w.undefined != 0 && !(ua | ub), 0)) { u64 ua = scalar_bits(w, o, 0); u64 ub = scalar_bits(w, o, 1); put_scalar_bits(w, o, r, (u32)(lanes)); } \
         else put32(w, o, r); \
         UNKNOWN(lanes, expr) NONZERO) \
    S_OP(s_##name##_b64, u64 ua; u64 ub; u64 a = mask_source<u64>(w, o, 0, ua); u64 b = mask_source<u64>(w, o, 1, ub); \
         u64 r = (expr); put64(w, o, r); UNKNOWN(lanes, expr) NONZERO)
LOGIC(and, a & b, unknown_and(a, ua, b, ub))
LOGIC(or, a | b, unknown_or(a, ua, b, ub))
LOGIC(xor, a ^ b, ua | ub)
LOGIC(andn2, a & ~b, unknown_and(a, ua, ~(u64)b, ub))
LOGIC(orn2, a | ~b, unknown_or(a, ua, ~(u64)b, ub))
LOGIC(nand, ~(a & b), unknown_and(a, ua, b, ub))
LOGIC(nor, ~(a | b), unknown_or(a, ua, b, ub))
LOGIC(xnor, ~(a ^ b), ua | ub)
S32_BITS(s_lshl_b32, a << (b & 31), BY(ua << (b & 31)), NONZERO)
S32_BITS(s_lshr_b32, a >> (b & 31), BY(ua >> (b & 31)), NONZERO)
S32_BITS(s_ashr_i32, (i32)a >> (b & 31), BY((i32)ua >> (b & 31)), NONZERO)
S_OP(s_lshl_b64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); u64 r = a << (b & 63); put64(w, o, r); NONZERO)
S_OP(s_lshr_b64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); u64 r = a >> (b & 63); put64(w, o, r); NONZERO)
S_OP(s_ashr_i64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); u64 r = (u64)((i64)a >> (b & 63)); put64(w, o, r); NONZERO)
#define LSHL_ADD(n) S32_2(s_lshl##n##_add_u32, (a << n) + b, put_scc(w, (((u64)a << n) + b) >> 32 != 0);)
LSHL_ADD(1) LSHL_ADD(2) LSHL_ADD(3) LSHL_ADD(4)
S32_2(s_bfm_b32, ((1u << (a & 31)) - 1) << (b & 31), NO_SCC)
S_OP(s_bfm_b64, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put64(w, o, ((1ull << (a & 63)) - 1) << (b & 63));)
static u64 field(u64 a, u32 b, u32 width_of_all, bool is_signed) {
    u32 at = b & (width_of_all - 1), width = (b >> 16) & 127;
    if (!width) return 0;
    u64 x = a >> at;
    if (width_of_all == 32) x &= 0xffffffffull >> 0;
    if (width >= width_of_all - at) width = width_of_all - at;
    if (width < 64) x &= (1ull << width) - 1;
    if (is_signed && ((x >> (width - 1)) & 1) && width < 64) x |= ~0ull << width;
    return x;
}
S32_BITS(s_bfe_u32, field(a, b, 32, false), BY(field(ua, b, 32, false)), NONZERO)
S32_BITS(s_bfe_i32, field(a, b, 32, true), BY(field(ua, b, 32, true)), NONZERO)
S_OP(s_bfe_u64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); u64 r = field(a, b, 64, false); put64(w, o, r); NONZERO)
S_OP(s_bfe_i64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); u64 r = field(a, b, 64, true); put64(w, o, r); NONZERO)
S32_BITS(s_pack_ll_b32_b16, (a & 0xffff) | (b << 16), (ua & 0xffff) | (ub << 16), NO_SCC)
S32_BITS(s_pack_lh_b32_b16, (a & 0xffff) | (b & 0xffff0000), (ua & 0xffff) | (ub & 0xffff0000), NO_SCC)
S32_BITS(s_pack_hh_b32_b16, (a >> 16) | (b & 0xffff0000), (ua >> 16) | (ub & 0xffff0000), NO_SCC)
// A mask that is moved keeps its undefined lanes.
#define MOVES(name, T, get, put_at) INLINE void name(Wave &w, const Op &o, int source) { T a = get(w, o, source); \
    const Src &from = o.src[source]; u64 moved = unknown(w, from); put_at(w, o, a); \
    if (__builtin_expect(moved != 0, 0) && o.dst[0].kind == SGPR) combine_tables(w, o.dst[0].reg, {a, moved, from.reg}, {0, 0, 0}, moved, [](u64 x, u64) { return x; }); }
MOVES(move32, u32, s32, put32)
MOVES(move64, u64, s64, put64)
// What is known of the bits of a moved register stays known.
INLINE void move_bits(Wave &w, const Op &o, int source) {
    u32 bits = scalar_bits(w, o, source);
    move32(w, o, source);
    if (__builtin_expect(bits != 0, 0) && o.dst[0].kind == SGPR) put_scalar_bits(w, o, w.s[o.dst[0].reg], bits);
}
S_OP(s_cselect_b32, if (w.scc_defined) return move_bits(w, o, w.scc ? 0 : 1); w.undefined = 1; move32(w, o, w.scc ? 0 : 1);)
S_OP(s_cselect_b64, if (!w.scc_defined) w.undefined = 1; move64(w, o, w.scc ? 0 : 1);)
S32_2(s_absdiff_i32, (i32)(a - b) < 0 ? b - a : a - b, NONZERO)

S_OP(s_mov_b32, move_bits(w, o, 0);)
S_OP(s_mov_b64, move64(w, o, 0);)
S32_1(s_movk_i32, a, NO_SCC)
S_OP(s_cmov_b32, if (w.scc) move32(w, o, 0);)
S_OP(s_cmov_b64, if (w.scc) move64(w, o, 0);)
S_OP(s_not_b32, u32 a = s32(w, o, 0); u32 b = 0; u64 ua = unknown(w, o.src[0]); u64 ub = 0; u32 r = ~a; put32(w, o, r); UNKNOWN(ua, ~a) NONZERO)
S_OP(s_not_b64, u64 a = s64(w, o, 0); u64 b = 0; u64 ua = unknown(w, o.src[0]); u64 ub = 0; u64 r = ~a; put64(w, o, r); UNKNOWN(ua, ~a) NONZERO)
S32_1(s_brev_b32, __builtin_bitreverse32(a), NO_SCC)
S64_1(s_brev_b64, __builtin_bitreverse64(a), NO_SCC)
S32_1(s_abs_i32, (i32)a < 0 ? 0 - a : a, NONZERO)
S32_1_BITS(s_sext_i32_i8, (i32)(int8_t)a, (i32)(int8_t)ua, NO_SCC)
S32_1_BITS(s_sext_i32_i16, (i32)(i16)a, (i32)(i16)ua, NO_SCC)
S32_1(s_bcnt1_i32_b32, __builtin_popcount(a), NONZERO)
S_OP(s_bcnt1_i32_b64, u32 r = (u32)__builtin_popcountll(s64(w, o, 0)); put32(w, o, r); NONZERO)
S32_1(s_bcnt0_i32_b32, __builtin_popcount(~a), NONZERO)
S_OP(s_bcnt0_i32_b64, u32 r = (u32)__builtin_popcountll(~s64(w, o, 0)); put32(w, o, r); NONZERO)
S32_1_BITS(s_ff1_i32_b32, a ? __builtin_ctz(a) : -1, (a & ~ua) && !(ua & ((1u << __builtin_ctz(a & ~ua)) - 1)) ? 0 : ~0u, NO_SCC)
S_OP(s_ff1_i32_b64, u64 a = s64(w, o, 0); put32(w, o, a ? (u32)__builtin_ctzll(a) : ~0u);)
S32_1(s_ff0_i32_b32, ~a ? __builtin_ctz(~a) : -1, NO_SCC)
S32_1(s_flbit_i32_b32, a ? __builtin_clz(a) : -1, NO_SCC)
S_OP(s_flbit_i32_b64, u64 a = s64(w, o, 0); put32(w, o, a ? (u32)__builtin_clzll(a) : ~0u);)
REGISTER(s_ctz_i32_b32, s_ff1_i32_b32)
REGISTER(s_ctz_i32_b64, s_ff1_i32_b64)
REGISTER(s_clz_i32_u32, s_flbit_i32_b32)
REGISTER(s_clz_i32_u64, s_flbit_i32_b64)
S_OP(s_bitset0_b32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put32(w, o, b & ~(1u << (a & 31)));)
S_OP(s_bitset1_b32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put32(w, o, b | (1u << (a & 31)));)
S_OP(s_addk_i32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); u32 r = a + b; put32(w, o, r); put_scc(w, (i32)((a ^ r) & (b ^ r)) < 0);)
S_OP(s_mulk_i32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put32(w, o, a * b);)

#define S_CMP(name, T, expr) S_OP(s_cmp_##name, T a = (T)s32(w, o, 0); T b = (T)s32(w, o, 1); put_scc(w, expr);) REGISTER(s_cmpk_##name, s_cmp_##name)
#define S_CMPS(name, expr) S_CMP(name##_i32, i32, expr) S_CMP(name##_u32, u32, expr)
S_CMPS(eq, a == b)
S_CMPS(lg, a != b)
S_CMPS(gt, a > b)
S_CMPS(ge, a >= b)
S_CMPS(lt, a < b)
S_CMPS(le, a <= b)
S_OP(s_cmp_eq_u64, u64 a = s64(w, o, 0); u64 b = s64(w, o, 1); put_scc(w, a == b);)
S_OP(s_cmp_lg_u64, u64 a = s64(w, o, 0); u64 b = s64(w, o, 1); put_scc(w, a != b);)
S_OP(s_bitcmp0_b32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put_scc(w, !((a >> (b & 31)) & 1));)
S_OP(s_bitcmp1_b32, u32 a = s32(w, o, 0); u32 b = s32(w, o, 1); put_scc(w, (a >> (b & 31)) & 1);)
S_OP(s_bitcmp0_b64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); put_scc(w, !((a >> (b & 63)) & 1));)
S_OP(s_bitcmp1_b64, u64 a = s64(w, o, 0); u32 b = s32(w, o, 1); put_scc(w, (a >> (b & 63)) & 1);)

// EXEC is combined with a mask, and its old value kept. within: the new EXEC is a part of the old one.
template <class F> COLD static void save_tables(Wave &w, const Op &o, MaskSource a, MaskSource e, u64 rule, F combine) {
    Tables &t = tables(w);
    u64 old[64], opaque = t.opaque[EXEC];
    const bool within = !combine(~0ull, 0) && !combine(0, 0);
    memcpy(old, t.of[EXEC], sizeof old);
    combine_tables(w, EXEC, a, e, rule, combine);
    if (o.dst[0].kind == SGPR) set_tables(w, o.dst[0].reg, e.lanes, opaque, old);
    for (u64 on = w.s_lanes[EXEC]; on; on &= on - 1) { // what comparisons made becomes one unknown of EXEC
        u32 l = (u32)__builtin_ctzll(on);
        if (!((t.opaque[EXEC] >> l) & 1) && support(t.of[EXEC][l]) >> COMPARED << COMPARED == support(t.of[EXEC][l])) continue;
        u64 part = (e.lanes >> l) & 1 ? old[l] : (e.bits >> l) & 1 ? ~0ull : 0;
        if ((e.lanes & opaque) >> l & 1) continue;
        t.of[EXEC][l] = part; // so that none of its unknowns is taken
        t.opaque[EXEC] &= ~(1ull << l);
        u64 one = fresh(w, l, true);
        t.of[EXEC][l] = within ? part & one : one;
    }
}
#define SAVEEXEC_OF(name, T, size, read, write, expr, lanes) \
    OP(s_##name##_saveexec_##size) { w.undefined = 0; T a = read(w, o, 0), e = (T)exec(w); u64 ua = unknown(w, o.src[0]), ub = w.s_lanes[EXEC]; \
        write(w, o, e); need_defined(w, o, "EXEC"); \
        T r = (T)(expr); put_mask(w, o, EXEC, r); \
        if (__builtin_expect(ua | ub, 0)) save_tables(w, o, {a, ua, o.src[0].reg}, {e, ub, EXEC}, lanes, [](u64 a, u64 e) { return (u64)(expr); }); \
        put_scc(w, r != 0); }
#define SAVEEXEC(name, expr, lanes) SAVEEXEC_OF(name, u64, b64, s64, put64, expr, lanes) SAVEEXEC_OF(name, u32, b32, s32, put32, expr, lanes)
SAVEEXEC(and, a & e, unknown_and(a, ua, e, ub))
SAVEEXEC(or, a | e, unknown_or(a, ua, e, ub))
SAVEEXEC(xor, a ^ e, ua | ub)
SAVEEXEC(andn2, a & ~e, unknown_and(a, ua, ~(u64)e, ub))
SAVEEXEC(and_not1, a & ~e, unknown_and(a, ua, ~(u64)e, ub))
SAVEEXEC(andn1, ~a & e, unknown_and(~(u64)a, ua, e, ub))
SAVEEXEC(and_not0, ~a & e, unknown_and(~(u64)a, ua, e, ub))
SAVEEXEC(orn1, ~a | e, unknown_or(~(u64)a, ua, e, ub))
SAVEEXEC(or_not0, ~a | e, unknown_or(~(u64)a, ua, e, ub))
SAVEEXEC(orn2, a | ~e, unknown_or(a, ua, ~(u64)e, ub))
SAVEEXEC(or_not1, a | ~e, unknown_or(a, ua, ~(u64)e, ub))
SAVEEXEC(nand, ~(a & e), unknown_and(a, ua, e, ub))
SAVEEXEC(nor, ~(a | e), unknown_or(a, ua, e, ub))
SAVEEXEC(xnor, ~(a ^ e), ua | ub)

// ---------------------------------------------------------------- control flow

INLINE void branch(Wave &w, const Op &o, bool taken) { if (taken) w.pc = o.target; }
S_OP(s_branch, branch(w, o, true);)
S_OP(s_cbranch_scc0, if (!w.scc_defined) w.undefined = 1; need_defined(w, o, "a branch"); branch(w, o, !w.scc);)
S_OP(s_cbranch_scc1, if (!w.scc_defined) w.undefined = 1; need_defined(w, o, "a branch"); branch(w, o, w.scc);)
S_OP(s_cbranch_vccz, u64 m = mask_at(w, o, VCC); need_defined(w, o, "a branch"); branch(w, o, !m);)
S_OP(s_cbranch_vccnz, u64 m = mask_at(w, o, VCC); need_defined(w, o, "a branch"); branch(w, o, m != 0);)
S_OP(s_cbranch_execz, branch(w, o, !exec(w));)
S_OP(s_cbranch_execnz, branch(w, o, exec(w) != 0);)
S_OP(s_getpc_b64, put64(w, o, 0x7c0de00000000ull | w.pc);)
S_OP(s_setpc_b64, u64 to = s64(w, o, 0); need_defined(w, o, "a jump"); if ((to >> 32) != 0x7c0de) return fail(w, o, LAUNCH_ERROR, "a jump to an address that holds no code"); w.pc = (u32)to;)
S_OP(s_swappc_b64, u64 to = s64(w, o, 0); need_defined(w, o, "a call"); put64(w, o, 0x7c0de00000000ull | w.pc); if ((to >> 32) != 0x7c0de) return fail(w, o, LAUNCH_ERROR, "a call of an address that holds no code"); w.pc = (u32)to;)
OP(s_nop) {}
OP(s_sleep) { w.stop = 1; if (w.state == RUNNING) w.state = YIELDED; }
OP(s_endpgm) { w.state = ENDED; w.stop = 1; }
OP(s_trap) { fail(w, o, LAUNCH_ERROR, "a trap"); }
OP(s_barrier) {
    if (w.lds_writes && w.block->waves > 1) {
        w.launch->region = -2;
        return fail(w, o, RACE, "a barrier is reached before the wait for the LDS writes of assembly line %u", w.last_unwaited);
    }
    w.launch->counts[COUNT_BARRIER] += (u64)__builtin_popcountll(w.all);
    w.barrier_pc = w.pc;
    w.state = AT_BARRIER;
    w.stop = 1;
}
OP(unsupported) { fail(w, o, UNSUPPORTED, "an instruction that the simulator does not know"); }
S_OP(s_setreg, u32 a = s32(w, o, 0); u32 at = o.extra & 31; u32 n = o.data; if (o.target == 1) w.stop = 1; if (o.target == 1) w.mode = (w.mode & ~(((1u << n) - 1) << at)) | ((a & ((1u << n) - 1)) << at);)
S_OP(s_getreg, u32 x = o.target == 1 ? w.mode : 0; put32(w, o, (x >> (o.extra & 31)) & (o.data >= 32 ? ~0u : (1u << o.data) - 1));)
S_OP(s_memtime, put64(w, o, w.executed);)
