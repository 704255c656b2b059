// LDS instructions, races in LDS, and the exchange between lanes.
#pragma once
#include "memory.h"

// The last write and read of a byte of LDS in a checked launch: epoch << 8 | wave << 1 | atomic, plus 1 << 63 free bits.
struct Shadow { u32 writer, reader; };
enum { S_READ, S_WRITE, S_ATOMIC };

COLD static void raced(Wave &w, const Op &o, u32 at, u32 lane, u32 other, bool wrote) {
    Launch &l = *w.launch;
    if (l.status) return;
    u32 t = w.first_thread + lane, x = l.block[0], y = l.block[1];
    fail(w, o, RACE, "byte %u of LDS is %s by wave %u and by wave %u without a barrier between", at,
         wrote ? "written" : "read", (other >> 1) & 127, w.number);
    l.at.thread[0] = t % x; l.at.thread[1] = t / x % y; l.at.thread[2] = t / x / y;
    l.region = -2;
}
INLINE void shadowed(Wave &w, const Op &o, u32 at, u32 bytes, u32 lane, int kind) {
    if (!w.block->shadow) return;
    u32 now = w.block->epoch << 8 | w.number << 1 | (kind == S_ATOMIC);
    for (u32 i = at; i < at + bytes; i++) {
        Shadow &s = w.block->shadow[i];
        bool both = kind == S_ATOMIC && (s.writer & 1);
        if (s.writer && s.writer >> 8 == now >> 8 && ((s.writer ^ now) >> 1) && !both) return raced(w, o, i, lane, s.writer, true);
        if (kind != S_READ && s.reader && s.reader >> 8 == now >> 8 && ((s.reader ^ now) >> 1)) return raced(w, o, i, lane, s.reader, false);
        if (kind == S_READ) { if (s.reader >> 8 != now >> 8 || ((s.reader ^ now) >> 1) == 0) s.reader = now; else if ((s.reader >> 1) != (now >> 1)) s.reader = now; }
        else s.writer = now;
    }
}
// Whether bytes of LDS are still loaded by this wave's own loads to LDS, which no counter has waited for.
COLD static bool still_loaded(Wave &w, const Op &o, u32 at, u32 bytes) {
    for (u32 i = 0; i < w.outstanding; i++) {
        const Pending &p = w.queue[i];
        for (u64 on = p.bytes ? p.lanes : 0; on; on &= on - 1) {
            u32 from = p.lds + (u32)__builtin_ctzll(on) * p.bytes;
            if (at + bytes <= from || at >= from + p.bytes) continue;
            fail(w, o, LAUNCH_ERROR, "byte %u of LDS is used before the wait for the load of assembly line %u", at, p.line);
            return true;
        }
    }
    return false;
}
// Byte offsets in LDS of the active lanes; false after a fault. extent: bytes from the address that are accessed.
INLINE bool lds_places(Wave &w, const Op &o, u32 first, u32 bytes, u32 *at) {
    begin(w);
    const u32 *p = (const u32 *)lanes32(w, o, 0, 0);
    if (__builtin_expect((w.undefined & w.active) != 0, 0)) {
        fail(w, o, LAUNCH_ERROR, "the address of an LDS access depends on a register that was never written");
        return false;
    }
    u32 size = w.block->lds_bytes;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        u64 a = (u32)(p[l] + first); // the sum wraps (LLVM: hasUsableDSOffset), so a register may hold a negative number
        if (__builtin_expect(a + bytes > size, 0)) {
            outside(w, o, a, bytes, false, l);
            w.launch->region = -2;
            return false;
        }
        if (__builtin_expect(w.direct != 0, 0) && still_loaded(w, o, (u32)a, bytes)) return false;
        at[l] = (u32)a;
    }
    w.launch->counts[COUNT_LDS] += (u64)bytes * __builtin_popcountll(w.active);
    if (__builtin_expect(w.launch->profile != nullptr, 0)) count_lds(w, o, bytes, at);
    return true;
}
template <int WORDS> INLINE void lds_load(Wave &w, const Op &o, const u32 *at, u32 reg) {
    const u8 *lds = w.block->lds;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), x[WORDS];
        shadowed(w, o, at[l], 4 * WORDS, l, S_READ);
        memcpy(x, lds + at[l], 4 * WORDS);
        for (int i = 0; i < WORDS; i++) set_word(w, reg + i, l, x[i]);
    }
    loaded(w, reg, WORDS);
}
// Loads from global memory to LDS: lane l's words go to LDS_base + M0 + offset + l * size (CDNA 3 ISA, "LDS_ADDR").
template <int WORDS> INLINE void load_to_lds(Wave &w, const Op &o) {
    u64 a[64];
    if (!places(w, o, 4 * WORDS, false, a)) return;
    w.undefined = 0;
    use_s(w, o, M0);
    need_defined(w, o, "the LDS address of a load");
    u32 first = (w.s[M0] & 0x3ffff) + (u32)o.offset;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), at = first + l * 4 * WORDS;
        if (at + 4 * WORDS > w.block->lds_bytes) { outside(w, o, at, 4 * WORDS, true, l); w.launch->region = -2; return; }
        shadowed(w, o, at, 4 * WORDS, l, S_WRITE);
        memcpy(w.block->lds + at, (const void *)a[l], 4 * WORDS);
    }
    w.launch->counts[COUNT_LDS] += 4ull * WORDS * __builtin_popcountll(w.active);
    issue(w, o, VM, true, false, 0, 0, true);
    Pending &p = w.queue[w.outstanding - 1];
    p.lds = first, p.bytes = 4 * WORDS, p.lanes = w.active;
    w.direct++;
}
OP(load_lds_dword) { load_to_lds<1>(w, o); }
OP(load_lds_dwordx3) { load_to_lds<3>(w, o); }
OP(load_lds_dwordx4) { load_to_lds<4>(w, o); }
template <int WORDS> INLINE void lds_store(Wave &w, const Op &o, u32 offset, u32 reg) {
    u32 at[64];
    if (!lds_places(w, o, offset, 4 * WORDS, at)) return;
    u64 unclear[WORDS];
    for (int i = 0; i < WORDS; i++) unclear[i] = undefined_lanes(w, o, reg + i);
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), x[WORDS];
        shadowed(w, o, at[l], 4 * WORDS, l, S_WRITE);
        for (int i = 0; i < WORDS; i++) x[i] = stored(w, reg + i, l, unclear[i]);
        memcpy(w.block->lds + at[l], x, 4 * WORDS);
    }
}
template <class T, int HIGH> INLINE void lds_load_part(Wave &w, const Op &o) {
    u32 at[64], reg = o.dst[0].reg;
    if (!lds_places(w, o, (u32)o.offset, sizeof(T), at)) return;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        T x;
        shadowed(w, o, at[l], sizeof(T), l, S_READ);
        memcpy(&x, w.block->lds + at[l], sizeof(T));
        u32 value = (u32)(i32)x, old = word(w, reg, l);
        if (HIGH == 1) value = (old & 0xffff0000) | (value & 0xffff);
        if (HIGH == 2) value = (old & 0xffff) | (value << 16);
        set_word(w, reg, l, value);
    }
    if (HIGH && __builtin_expect((~w.v_defined[reg] & w.active) != 0, 0)) loaded_beside(w, reg, HIGH == 1 ? 0xffff0000u : 0xffffu);
    else loaded(w, reg, 1);
    issue(w, o, LGKM, true, false, reg, 1);
}
template <class T, int SHIFT> INLINE void lds_store_part(Wave &w, const Op &o) {
    u32 at[64], reg = o.src[1].reg;
    if (!lds_places(w, o, (u32)o.offset, sizeof(T), at)) return;
    u64 unclear = undefined_lanes(w, o, reg);
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        T x = (T)(stored(w, reg, l, unclear) >> SHIFT);
        shadowed(w, o, at[l], sizeof(T), l, S_WRITE);
        memcpy(w.block->lds + at[l], &x, sizeof(T));
    }
    issue(w, o, LGKM, true, false, 0, 0, true);
}
#define DS_READ(name, n) OP(ds_read_##name) { u32 at[64]; if (!lds_places(w, o, (u32)o.offset, 4 * n, at)) return; lds_load<n>(w, o, at, o.dst[0].reg); issue(w, o, LGKM, true, false, o.dst[0].reg, n); }
#define DS_WRITE(name, n) OP(ds_write_##name) { lds_store<n>(w, o, (u32)o.offset, o.src[1].reg); issue(w, o, LGKM, true, false, 0, 0, true); }
DS_READ(b32, 1) DS_READ(b64, 2) DS_READ(b96, 3) DS_READ(b128, 4)
DS_WRITE(b32, 1) DS_WRITE(b64, 2) DS_WRITE(b96, 3) DS_WRITE(b128, 4)
// Two accesses; offsets are in units of `unit` bytes.
#define DS_TWO(suffix, n, unit) \
    OP(ds_read2##suffix) { u32 first[64], second[64]; /* both addresses before the result, which may overwrite them */ \
        if (!lds_places(w, o, (u32)o.offset * (unit), 4 * n, first) || !lds_places(w, o, (u32)o.offset2 * (unit), 4 * n, second)) return; \
        lds_load<n>(w, o, first, o.dst[0].reg); lds_load<n>(w, o, second, o.dst[0].reg + n); \
        issue(w, o, LGKM, true, false, o.dst[0].reg, 2 * n); } \
    OP(ds_write2##suffix) { lds_store<n>(w, o, (u32)o.offset * (unit), o.src[1].reg); lds_store<n>(w, o, (u32)o.offset2 * (unit), o.src[2].reg); \
        issue(w, o, LGKM, true, false, 0, 0, true); }
DS_TWO(_b32, 1, 4) DS_TWO(_b64, 2, 8) DS_TWO(st64_b32, 1, 256) DS_TWO(st64_b64, 2, 512)
OP(ds_read_u8) { lds_load_part<u8, 0>(w, o); }
OP(ds_read_i8) { lds_load_part<int8_t, 0>(w, o); }
OP(ds_read_u16) { lds_load_part<u16, 0>(w, o); }
OP(ds_read_i16) { lds_load_part<i16, 0>(w, o); }
OP(ds_read_u16_d16) { lds_load_part<u16, 1>(w, o); }
OP(ds_read_u16_d16_hi) { lds_load_part<u16, 2>(w, o); }
OP(ds_read_u8_d16) { lds_load_part<u8, 1>(w, o); }
OP(ds_read_u8_d16_hi) { lds_load_part<u8, 2>(w, o); }
OP(ds_read_i8_d16) { lds_load_part<int8_t, 1>(w, o); }
OP(ds_read_i8_d16_hi) { lds_load_part<int8_t, 2>(w, o); }
OP(ds_write_b8) { lds_store_part<u8, 0>(w, o); }
OP(ds_write_b16) { lds_store_part<u16, 0>(w, o); }
OP(ds_write_b8_d16_hi) { lds_store_part<u8, 16>(w, o); }
OP(ds_write_b16_d16_hi) { lds_store_part<u16, 16>(w, o); }

template <int K, class T, bool R> INLINE void lds_atomic(Wave &w, const Op &o) {
    u32 at[64];
    const u32 words = sizeof(T) / 4;
    u32 data = o.src[1].reg;
    if (!lds_places(w, o, (u32)o.offset, sizeof(T), at) || !data_defined(w, o, data, words)) return;
    if (K == A_CMPSWAP && !data_defined(w, o, o.src[2].reg, words)) return;
    u64 a[64];
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        shadowed(w, o, at[l], sizeof(T), l, S_ATOMIC);
        a[l] = (u64)(w.block->lds + at[l]);
    }
    // a compare-and-swap of LDS names what is compared with first
    if (K == A_CMPSWAP) apply<K, T>(w, o, a, o.src[2].reg, data, R);
    else apply<K, T>(w, o, a, data, data, R);
    issue(w, o, LGKM, true, false, R ? o.dst[0].reg : 0, R ? words : 0, !R);
}
#define DS_ATOMIC(name, type, kind, T) OP(ds_##name##_##type) { lds_atomic<kind, T, false>(w, o); } \
    OP(ds_##name##_rtn_##type) { lds_atomic<kind, T, true>(w, o); }
#define DS_ATOMICS(name, t32, t64, kind) DS_ATOMIC(name, t32, kind, u32) DS_ATOMIC(name, t64, kind, u64)
DS_ATOMICS(add, u32, u64, A_ADD) DS_ATOMICS(sub, u32, u64, A_SUB) DS_ATOMICS(rsub, u32, u64, A_RSUB)
DS_ATOMICS(inc, u32, u64, A_INC) DS_ATOMICS(dec, u32, u64, A_DEC)
DS_ATOMICS(min, i32, i64, A_SMIN) DS_ATOMICS(max, i32, i64, A_SMAX) DS_ATOMICS(min, u32, u64, A_UMIN) DS_ATOMICS(max, u32, u64, A_UMAX)
DS_ATOMICS(and, b32, b64, A_AND) DS_ATOMICS(or, b32, b64, A_OR) DS_ATOMICS(xor, b32, b64, A_XOR)
DS_ATOMICS(add, f32, f64, A_FADD) DS_ATOMICS(min, f32, f64, A_FMIN) DS_ATOMICS(max, f32, f64, A_FMAX)
DS_ATOMICS(cmpst, b32, b64, A_CMPSWAP)
OP(ds_wrxchg_rtn_b32) { lds_atomic<A_SWAP, u32, true>(w, o); }
OP(ds_wrxchg_rtn_b64) { lds_atomic<A_SWAP, u64, true>(w, o); }
OP(ds_pk_add_f16) { lds_atomic<A_PKF16, u32, false>(w, o); }
OP(ds_pk_add_bf16) { lds_atomic<A_PKBF16, u32, false>(w, o); }

// ---------------------------------------------------------------- between lanes

// Each active lane takes the value of a lane; of one that is inactive, an undefined one.
template <class F> INLINE void from_lanes(Wave &w, const Op &o, u32 data, F source) {
    u64 undefined = w.undefined;
    w.undefined = 0;
    use_v(w, o, data);
    u64 absent = w.undefined | ~w.active, made = undefined;
    Row in = w.v[data], out;
    u32 poison = (u32)w.launch->poison;
    for (u32 l = 0; l < w.lanes; l++) {
        u32 s = source(l) & (w.lanes - 1);
        ((u32 *)out.c)[l] = (w.active >> s) & 1 ? ((u32 *)in.c)[s] : poison;
        if ((absent >> s) & 1) made |= 1ull << l;
    }
    w.undefined = made;
    w.launch->counts[COUNT_WAVE] += (u64)__builtin_popcountll(w.active);
    if (any_undefined(w)) {
        Row bits;
        for (u32 l = 0; l < w.lanes; l++) {
            u32 s = source(l) & (w.lanes - 1);
            ((u32 *)bits.c)[l] = !((w.active >> s) & 1) || ((undefined >> l) & 1) ? ~0u : undefined_word(w, data, s);
        }
        put_bits(w, o, out.c, bits, o.dst[0].reg);
    } else put(w, o, out.c, o.dst[0].reg);
    issue(w, o, LGKM, true, false, o.dst[0].reg, 1);
}
OP(ds_bpermute_b32) {
    begin(w);
    Row address = *(const Row *)lanes32(w, o, 0, 0);
    const u32 *p = (const u32 *)address.c;
    from_lanes(w, o, o.src[1].reg, [&](u32 l) { return (p[l] + (u32)o.offset) >> 2; });
}
OP(ds_permute_b32) {
    begin(w);
    const u32 *p = (const u32 *)lanes32(w, o, 0, 0);
    u32 data = o.src[1].reg;
    use_v(w, o, data);
    u64 undefined = w.undefined, made = 0;
    Row in = w.v[data], out;
    memset(&out, 0, sizeof out);
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), to = ((p[l] + (u32)o.offset) >> 2) & (w.lanes - 1);
        ((u32 *)out.c)[to] = ((u32 *)in.c)[l];
        if ((undefined >> l) & 1) made |= 1ull << to;
    }
    w.undefined = made;
    put(w, o, out.c, o.dst[0].reg);
    w.launch->counts[COUNT_WAVE] += (u64)__builtin_popcountll(w.active);
    issue(w, o, LGKM, true, false, o.dst[0].reg, 1);
}
static u32 swizzle_source(u32 offset, u32 l) {
    if (offset >= 0xe000) return l;
    if (offset >= 0xc000) {
        u32 mask = offset & 31, size = (offset >> 5) & 31, by = (offset >> 10) & 1 ? 32 - size : size;
        return (l & 32) | (l & mask) | ((l + by) & 31 & ~mask);
    }
    if (offset & 0x8000) return (l & ~3u) | ((offset >> (2 * (l & 3))) & 3);
    return (l & 32) | ((((l & 31) & (offset & 31)) | ((offset >> 5) & 31)) ^ ((offset >> 10) & 31));
}
OP(ds_swizzle_b32) {
    begin(w);
    from_lanes(w, o, o.src[0].reg, [&](u32 l) { return swizzle_source((u32)o.offset, l); });
}
