// Memory: waits, bounds, scalar, global, flat, scratch and LDS instructions, atomics.
#pragma once
#include "profile.h"
#include "valu_16.h"

enum { GLOBAL, FLAT, SCRATCH };
enum : u64 { LDS_APERTURE = 0x10000, PRIVATE_APERTURE = 0x20000 }; // high words of flat addresses

// ---------------------------------------------------------------- waits

static void retire(Wave &w, u32 at) {
    Pending p = w.queue[at];
    for (u32 r = p.reg; r < (u32)p.reg + p.count; r++) {
        if (p.scalar) w.s_pending[r]--;
        else w.v_pending[r]--;
    }
    if (p.lds_write) w.lds_writes--;
    if (p.bytes) w.direct--;
    for (u32 i = at + 1; i < w.outstanding; i++) w.queue[i - 1] = w.queue[i];
    w.outstanding--;
}
// Something that counters tell of is in flight. ordered: it ends after those before it.
static void issue(Wave &w, const Op &o, u32 counters, bool ordered, bool scalar, u32 reg, u32 count, bool lds_write = false) {
    if (w.outstanding == 64) { // the counters are full: the wave waits for the oldest
        retire(w, 0);
    }
    w.queue[w.outstanding++] = {(u8)counters, ordered, scalar, (u8)count, (u16)reg, (u16)lds_write, o.line, 0, 0, 0, {w.batch[0], w.batch[1]}};
    for (u32 r = reg; r < reg + count; r++) {
        if (scalar) w.s_pending[r]++;
        else w.v_pending[r]++;
    }
    if (lds_write) { w.lds_writes++; w.last_unwaited = o.line; }
}
// Wait until at most n are in flight. Those that may end in any order are taken to end as unhelpfully as possible.
static void wait_for(Wave &w, u32 counter, u32 n) {
    u32 total = 0, loose = 0;
    for (u32 i = 0; i < w.outstanding; i++)
        if (w.queue[i].counters & counter) { total++; loose += !w.queue[i].ordered; }
    if (total <= n) return;
    u32 ended = n == 0 ? total : total - n > loose ? total - n - loose : 0;
    for (u32 i = 0; i < w.outstanding && ended;) {
        Pending &p = w.queue[i];
        if (!(p.counters & counter) || (n && !p.ordered)) { i++; continue; }
        ended--;
        p.counters &= ~counter;
        if (p.counters) i++;
        else retire(w, i);
    }
}
OP(s_waitcnt) { // extra, data, target: what vmcnt, lgkmcnt and vscnt may be at most, 255 for any
    if (__builtin_expect(w.launch->profile != nullptr, 0)) {
        count_wait(w, o, VM, o.extra);
        count_wait(w, o, LGKM, o.data);
        count_wait(w, o, VS, o.target);
    }
    if (o.extra < 255) wait_for(w, VM, o.extra);
    if (o.data < 255) wait_for(w, LGKM, o.data);
    if (o.target < 255) wait_for(w, VS, o.target);
}

// ---------------------------------------------------------------- bounds

COLD static void outside(Wave &w, const Op &o, u64 address, u32 bytes, bool write, u32 lane) {
    Launch &l = *w.launch;
    if (l.status) return;
    i32 nearest = -1;
    u64 distance = 1 << 20;
    for (u32 i = 0; i < l.region_count; i++) {
        const Region &r = l.regions[i];
        u64 d = address < r.start ? r.start - address : address - (r.start + r.size) + 1;
        if (d < distance) { distance = d; nearest = (i32)i; }
    }
    l.address = address;
    l.bytes = bytes;
    l.at.access = write;
    l.region = nearest;
    fail(w, o, OUT_OF_BOUNDS, "outside every buffer");
    u32 t = w.first_thread + lane, x = l.block[0], y = l.block[1];
    l.at.thread[0] = t % x; l.at.thread[1] = t / x % y; l.at.thread[2] = t / x / y;
}
INLINE bool inside(const Region &r, u64 a, u32 n) { return a - r.start < r.size && r.size - (a - r.start) >= n; }
INLINE const Region *region_of(Wave &w, u64 a, u32 n, const Region *hint) {
    if (hint && inside(*hint, a, n)) return hint;
    Launch &l = *w.launch;
    for (u32 i = 0; i < l.region_count; i++) if (inside(l.regions[i], a, n)) return &l.regions[i];
    return nullptr;
}
COLD static void read_only(Wave &w, const Op &o, u64 address, u32 bytes, const Region *r) {
    Launch &l = *w.launch;
    if (l.status) return;
    l.address = address; l.bytes = bytes; l.at.access = 1; l.region = (i32)(r - l.regions);
    fail(w, o, READ_ONLY, "a write to an input or parameter");
}

// ---------------------------------------------------------------- scalar loads

INLINE void scalar_load(Wave &w, const Op &o, u32 words) {
    w.undefined = 0;
    u64 a = s64(w, o, 0) + (i64)o.offset;
    if (o.src[1].kind != NONE) a += s32(w, o, 1);
    need_defined(w, o, "the address of a load");
    a &= ~3ull;
    Launch &l = *w.launch;
    bool args = a - (u64)l.kernarg < l.kernarg_bytes && l.kernarg_bytes - (a - (u64)l.kernarg) >= 4 * words;
    if (!args) {
        const Region *r = region_of(w, a, 4, nullptr);
        // a word may reach past the end of a buffer, a whole one may not
        if (!r || (a + 4 * words > ((r->start + r->size + 3) & ~3ull))) return outside(w, o, a, 4 * words, false, 0);
    }
    u32 reg = o.dst[0].reg;
    for (u32 i = 0; i < words; i++) {
        u32 x;
        memcpy(&x, (const void *)(a + 4 * i), 4);
        set_s(w, o, reg + i, x, true);
    }
    w.launch->counts[COUNT_READ] += args ? 0 : 4 * words;
    if (__builtin_expect(w.launch->profile != nullptr, 0)) count_scalar(w, o, a, 4 * words);
    issue(w, o, LGKM, false, true, reg, words);
}
OP(s_load_dword) { scalar_load(w, o, 1); }
OP(s_load_dwordx2) { scalar_load(w, o, 2); }
OP(s_load_dwordx3) { scalar_load(w, o, 3); }
OP(s_load_dwordx4) { scalar_load(w, o, 4); }
OP(s_load_dwordx8) { scalar_load(w, o, 8); }
OP(s_load_dwordx16) { scalar_load(w, o, 16); }

// ---------------------------------------------------------------- addresses of vector memory

struct Places { u64 at[64]; u64 on; }; // of each active lane: a host address, 0 where it is outside
// src: 0 an address or an offset, 1 data, 2 the scalar base
INLINE void addresses(Wave &w, const Op &o, u64 *a) {
    const Src &base = o.src[2], &v = o.src[0];
    u64 plus = (u64)(i64)o.offset;
    if (o.segment == SCRATCH) {
        if (o.extra && w.s[o.extra] != (u32)PRIVATE_APERTURE) fail(w, o, UNSUPPORTED, "a buffer that is not private memory");
        if (base.kind != NONE) plus += s32(w, o, 2);
        if (v.kind == VGPR) {
            const u32 *p = (const u32 *)lanes32(w, o, 0, 0);
            for (u32 l = 0; l < w.lanes; l++) a[l] = (u32)(p[l] + plus);
        } else for (u32 l = 0; l < w.lanes; l++) a[l] = (u32)plus;
        return;
    }
    if (base.kind == SGPR) {
        plus += s64(w, o, 2);
        const u32 *p = (const u32 *)lanes32(w, o, 0, 0);
        for (u32 l = 0; l < w.lanes; l++) a[l] = p[l] + plus;
    } else {
        const u32 *p = (const u32 *)lanes32(w, o, 0, 0), *q = (const u32 *)lanes32(w, o, 0, 1, 1);
        for (u32 l = 0; l < w.lanes; l++) a[l] = (p[l] | (u64)q[l] << 32) + plus;
    }
}
INLINE u8 *scratch_at(Wave &w, const Op &o, u64 offset, u32 lane, u32 bytes, bool write) {
    u32 size = w.kernel->scratch;
    if (offset + bytes > size) { outside(w, o, offset, bytes, write, lane); w.launch->region = -3; return nullptr; }
    return w.scratch + (u64)size * lane + offset;
}
// Host addresses of the active lanes. False after a fault.
INLINE bool places(Wave &w, const Op &o, u32 bytes, bool write, u64 *a) {
    begin(w);
    addresses(w, o, a);
    if (__builtin_expect((w.undefined & w.active) != 0, 0)) {
        fail(w, o, LAUNCH_ERROR, "the address of a memory access depends on a register that was never written");
        return false;
    }
    const Region *hint = nullptr;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        if (o.segment == SCRATCH || (o.segment == FLAT && (a[l] >> 32) == PRIVATE_APERTURE)) {
            u8 *p = scratch_at(w, o, o.segment == SCRATCH ? a[l] : (u32)a[l], l, bytes, write);
            if (!p) return false;
            a[l] = (u64)p;
            continue;
        }
        if (o.segment == FLAT && (a[l] >> 32) == LDS_APERTURE) {
            u64 at = (u32)a[l];
            if (at + bytes > w.block->lds_bytes) { outside(w, o, at, bytes, write, l); w.launch->region = -2; return false; }
            a[l] = (u64)(w.block->lds + at);
            continue;
        }
        const Region *r = region_of(w, a[l], bytes, hint);
        if (__builtin_expect(!r, 0)) { outside(w, o, a[l], bytes, write, l); return false; }
        if (write && r->read_only) { read_only(w, o, a[l], bytes, r); return false; }
        hint = r;
    }
    w.launch->counts[write ? COUNT_WRITE : COUNT_READ] += o.segment == SCRATCH ? 0 : (u64)bytes * __builtin_popcountll(w.active);
    if (__builtin_expect(w.launch->profile != nullptr, 0) && o.segment != SCRATCH) count_memory(w, o, bytes, write, a);
    return true;
}
// Flat accesses may end in any order on gfx9; on RDNA each counter goes down in order (LLVM: hasFlatLgkmVMemCountInOrder).
INLINE bool in_order(const Op &o) { return o.segment != FLAT || (o.flags & 2); }
INLINE u32 load_counters(const Op &o) { return o.segment == FLAT ? VM | LGKM : VM; }

// ---------------------------------------------------------------- vector loads and stores

INLINE void set_word(Wave &w, u32 reg, u32 lane, u32 value) { ((u32 *)w.v[reg].c)[lane] = value; }
INLINE u32 word(const Wave &w, u32 reg, u32 lane) { return ((const u32 *)w.v[reg].c)[lane]; }
INLINE void loaded(Wave &w, u32 reg, u32 count) { // a later load may write what an earlier one still loads
    for (u32 i = 0; i < count; i++) w.v_defined[reg + i] |= w.active;
}
template <int WORDS> INLINE void load_words(Wave &w, const Op &o) {
    u64 a[64];
    if (!places(w, o, 4 * WORDS, false, a)) return;
    u32 reg = o.dst[0].reg;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), x[WORDS];
        memcpy(x, (const void *)a[l], 4 * WORDS);
        for (int i = 0; i < WORDS; i++) set_word(w, reg + i, l, x[i]);
    }
    loaded(w, reg, WORDS);
    issue(w, o, load_counters(o), in_order(o), false, reg, WORDS);
}
// HIGH: 0 the whole register, 1 its low half, 2 its high half (the other half stays)
template <class T, int HIGH> INLINE void load_part(Wave &w, const Op &o) {
    u64 a[64];
    if (!places(w, o, sizeof(T), false, a)) return;
    u32 reg = o.dst[0].reg;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        T x;
        memcpy(&x, (const void *)a[l], sizeof(T));
        u32 value = (u32)(i32)x, old = word(w, reg, l);
        if (HIGH == 1) value = (old & 0xffff0000) | (value & 0xffff);
        if (HIGH == 2) value = (old & 0xffff) | (value << 16);
        set_word(w, reg, l, value);
    }
    if (HIGH && __builtin_expect((~w.v_defined[reg] & w.active) != 0, 0)) loaded_beside(w, reg, HIGH == 1 ? 0xffff0000u : 0xffffu);
    else loaded(w, reg, 1);
    issue(w, o, load_counters(o), in_order(o), false, reg, 1);
}
// Undefined bits are stored as poison: programs store what they never use, such as the rest of a padded vector.
INLINE u64 undefined_lanes(Wave &w, const Op &o, u32 reg) {
    w.undefined = w.s_lanes[EXEC];
    use_v(w, o, reg);
    return w.undefined & w.active;
}
INLINE u32 stored(const Wave &w, u32 reg, u32 lane, u64 undefined) {
    u32 x = word(w, reg, lane);
    if (__builtin_expect((undefined >> lane) & 1, 0)) { u32 bits = undefined_word(w, reg, lane); x = (x & ~bits) | ((u32)w.launch->poison & bits); }
    return x;
}
INLINE bool data_defined(Wave &w, const Op &o, u32 reg, u32 count) {
    for (u32 i = 0; i < count; i++) use_v(w, o, reg + i);
    if (__builtin_expect((w.undefined & w.active) != 0, 0)) {
        fail(w, o, LAUNCH_ERROR, "a value that is stored depends on a register that was never written");
        return false;
    }
    return true;
}
INLINE u32 store_counters(const Op &o) { return (o.segment == FLAT ? LGKM : 0) | (o.flags & 2 ? VS : VM); }
template <int WORDS> INLINE void store_words(Wave &w, const Op &o) {
    u64 a[64];
    u32 reg = o.src[1].reg;
    if (!places(w, o, 4 * WORDS, true, a)) return;
    u64 unclear[WORDS];
    for (int i = 0; i < WORDS; i++) unclear[i] = undefined_lanes(w, o, reg + i);
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on), x[WORDS];
        for (int i = 0; i < WORDS; i++) x[i] = stored(w, reg + i, l, unclear[i]);
        memcpy((void *)a[l], x, 4 * WORDS);
    }
    issue(w, o, store_counters(o), in_order(o), false, 0, 0);
}
template <class T, int SHIFT> INLINE void store_part(Wave &w, const Op &o) {
    u64 a[64];
    u32 reg = o.src[1].reg;
    if (!places(w, o, sizeof(T), true, a)) return;
    u64 unclear = undefined_lanes(w, o, reg);
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        T x = (T)(stored(w, reg, l, unclear) >> SHIFT);
        memcpy((void *)a[l], &x, sizeof(T));
    }
    issue(w, o, store_counters(o), in_order(o), false, 0, 0);
}
OP(load_dword) { load_words<1>(w, o); }
OP(load_dwordx2) { load_words<2>(w, o); }
OP(load_dwordx3) { load_words<3>(w, o); }
OP(load_dwordx4) { load_words<4>(w, o); }
OP(load_ubyte) { load_part<u8, 0>(w, o); }
OP(load_sbyte) { load_part<int8_t, 0>(w, o); }
OP(load_ushort) { load_part<u16, 0>(w, o); }
OP(load_sshort) { load_part<i16, 0>(w, o); }
OP(load_short_d16) { load_part<u16, 1>(w, o); }
OP(load_short_d16_hi) { load_part<u16, 2>(w, o); }
OP(load_ubyte_d16) { load_part<u8, 1>(w, o); }
OP(load_ubyte_d16_hi) { load_part<u8, 2>(w, o); }
OP(load_sbyte_d16) { load_part<int8_t, 1>(w, o); }
OP(load_sbyte_d16_hi) { load_part<int8_t, 2>(w, o); }
OP(store_dword) { store_words<1>(w, o); }
OP(store_dwordx2) { store_words<2>(w, o); }
OP(store_dwordx3) { store_words<3>(w, o); }
OP(store_dwordx4) { store_words<4>(w, o); }
OP(store_byte) { store_part<u8, 0>(w, o); }
OP(store_short) { store_part<u16, 0>(w, o); }
OP(store_byte_d16_hi) { store_part<u8, 16>(w, o); }
OP(store_short_d16_hi) { store_part<u16, 16>(w, o); }

// ---------------------------------------------------------------- atomics

INLINE float as_float(u32 x) { float f; memcpy(&f, &x, 4); return f; }
INLINE u32 as_word(float f) { u32 x; memcpy(&x, &f, 4); return x; }
INLINE u32 add_halves(u32 a, u32 b, bool bf16) {
    u32 r = 0;
    for (u32 i = 0; i < 2; i++) {
        u16 x = (u16)(a >> (16 * i)), y = (u16)(b >> (16 * i));
        if (bf16) {
            VF s = (VF)broadcast(as_word(as_float((u32)x << 16) + as_float((u32)y << 16)));
            r |= (to_bf16(s)[0] & 0xffff) << (16 * i);
        } else {
            _Float16 h, g;
            memcpy(&h, &x, 2); memcpy(&g, &y, 2);
            h = (_Float16)((float)h + (float)g);
            memcpy(&x, &h, 2);
            r |= (u32)x << (16 * i);
        }
    }
    return r;
}
enum { A_SWAP, A_CMPSWAP, A_ADD, A_SUB, A_SMIN, A_UMIN, A_SMAX, A_UMAX, A_AND, A_OR, A_XOR, A_INC, A_DEC, A_FADD, A_FMIN, A_FMAX, A_PKF16, A_PKBF16, A_RSUB };
template <int N> struct SignedOf { typedef i32 type; };
template <> struct SignedOf<8> { typedef i64 type; };
template <int K, class T> INLINE T combine(T old, T x, T other) {
    typedef typename SignedOf<sizeof(T)>::type S;
    double d, e;
    switch (K) {
    case A_SWAP: return x;
    case A_CMPSWAP: return old == other ? x : old;
    case A_ADD: return old + x;
    case A_SUB: return old - x;
    case A_RSUB: return x - old;
    case A_SMIN: return (S)old < (S)x ? old : x;
    case A_SMAX: return (S)old > (S)x ? old : x;
    case A_UMIN: return old < x ? old : x;
    case A_UMAX: return old > x ? old : x;
    case A_AND: return old & x;
    case A_OR: return old | x;
    case A_XOR: return old ^ x;
    case A_INC: return old >= x ? 0 : old + 1;
    case A_DEC: return old == 0 || old > x ? x : old - 1;
    case A_PKF16: return add_halves((u32)old, (u32)x, false);
    case A_PKBF16: return add_halves((u32)old, (u32)x, true);
    default: break;
    }
    if (sizeof(T) == 4) {
        float f = as_float((u32)old), g = as_float((u32)x);
        return as_word(K == A_FADD ? f + g : K == A_FMIN ? fminf(f, g) : fmaxf(f, g));
    }
    memcpy(&d, &old, sizeof(T) < 8 ? sizeof(T) : 8); memcpy(&e, &x, sizeof(T) < 8 ? sizeof(T) : 8);
    d = K == A_FADD ? d + e : K == A_FMIN ? fmin(d, e) : fmax(d, e);
    memcpy(&old, &d, sizeof(T) < 8 ? sizeof(T) : 8);
    return old;
}
// The data of a compare-and-swap: the new value, then what is compared with.
template <int K, class T> INLINE void apply(Wave &w, const Op &o, const u64 *a, u32 data, u32 other, bool returns) {
    const u32 words = sizeof(T) / 4;
    for (u64 on = w.active; on; on &= on - 1) {
        u32 l = (u32)__builtin_ctzll(on);
        T x = 0, y = 0, old;
        for (u32 i = 0; i < words; i++) {
            x |= (T)word(w, data + i, l) << (32 * (i & (words - 1)));
            if (K == A_CMPSWAP) y |= (T)word(w, other + i, l) << (32 * (i & (words - 1)));
        }
        memcpy(&old, (const void *)a[l], sizeof(T));
        T made = combine<K, T>(old, x, y);
        memcpy((void *)a[l], &made, sizeof(T));
        if (returns) for (u32 i = 0; i < words; i++) set_word(w, o.dst[0].reg + i, l, (u32)(old >> (32 * (i & (words - 1)))));
    }
    w.launch->counts[COUNT_ATOMIC] += (u64)__builtin_popcountll(w.active);
    if (K >= A_FADD && K <= A_PKBF16) w.launch->counts[COUNT_FLOAT_ATOMIC] += (u64)__builtin_popcountll(w.active);
    if (returns) loaded(w, o.dst[0].reg, words);
}
template <int K, class T> INLINE void memory_atomic(Wave &w, const Op &o) {
    u64 a[64];
    const u32 words = sizeof(T) / 4;
    u32 data = o.src[1].reg;
    bool returns = o.dst[0].kind == VGPR;
    if (!places(w, o, sizeof(T), true, a) || !data_defined(w, o, data, K == A_CMPSWAP ? 2 * words : words)) return;
    apply<K, T>(w, o, a, data, data + words, returns);
    if (returns) issue(w, o, load_counters(o), in_order(o), false, o.dst[0].reg, words);
    else issue(w, o, store_counters(o), in_order(o), false, 0, 0);
}
#define ATOMIC(name, kind) OP(atomic_##name) { memory_atomic<kind, u32>(w, o); } OP(atomic_##name##_x2) { memory_atomic<kind, u64>(w, o); }
ATOMIC(swap, A_SWAP) ATOMIC(cmpswap, A_CMPSWAP) ATOMIC(add, A_ADD) ATOMIC(sub, A_SUB) ATOMIC(smin, A_SMIN) ATOMIC(umin, A_UMIN)
ATOMIC(smax, A_SMAX) ATOMIC(umax, A_UMAX) ATOMIC(and, A_AND) ATOMIC(or, A_OR) ATOMIC(xor, A_XOR) ATOMIC(inc, A_INC) ATOMIC(dec, A_DEC)
OP(atomic_add_f32) { memory_atomic<A_FADD, u32>(w, o); }
OP(atomic_min_f32) { memory_atomic<A_FMIN, u32>(w, o); }
OP(atomic_max_f32) { memory_atomic<A_FMAX, u32>(w, o); }
OP(atomic_add_f64) { memory_atomic<A_FADD, u64>(w, o); }
OP(atomic_min_f64) { memory_atomic<A_FMIN, u64>(w, o); }
OP(atomic_max_f64) { memory_atomic<A_FMAX, u64>(w, o); }
OP(atomic_pk_add_f16) { memory_atomic<A_PKF16, u32>(w, o); }
OP(atomic_pk_add_bf16) { memory_atomic<A_PKBF16, u32>(w, o); }
