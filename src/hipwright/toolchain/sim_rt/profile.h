// Counts of a profiled launch, by instruction: runs, lanes, cache lines under a model of the caches, LDS cycles, waits.
#pragma once
#include "core.h"

// Counts of one instruction; mirrored by device/sim/counters.py.
enum { P_LINE, P_RUNS, P_LANES, P_BYTES, P_LINES, P_IDEAL, P_LDS_CYCLES, P_LDS_IDEAL, P_WAIT_MEMORY, P_WAIT_LDS, P_WAIT_SCALAR, P_STALL_MEMORY, P_STALL_LDS, P_STALL_SCALAR, P_FIELDS };
// Counts of a launch.
enum { P_L1_HIT, P_L1_MISS, P_L2_HIT, P_L2_MISS, P_FETCHED, P_WRITTEN, P_SCALAR_HIT, P_SCALAR_MISS, P_WAVES, P_TOTALS };
enum { L1_WAYS = 64, L2_WAYS = 16, SCALAR_WAYS = 4, SCALAR_BYTES = 16 << 10 };

struct Cache { u32 sets, ways, clock; u64 *tag; u32 *used; u8 *dirty; };
struct CacheModel { u32 line, l1_bytes, l2_bytes, dies, banks, skipped; }; // l2_bytes: of one die; skipped: blocks
struct Profile {
    CacheModel model;
    u32 ops;
    u64 *op; // P_FIELDS for each instruction
    u64 total[P_TOTALS];
    Cache l1, scalar, *l2;
};

static void make_cache(Cache &c, u32 bytes, u32 line, u32 ways) {
    u32 lines = bytes / line;
    c.ways = ways < lines ? ways : lines ? lines : 1;
    c.sets = lines / c.ways ? lines / c.ways : 1;
    c.clock = 0;
    c.tag = (u64 *)calloc((size_t)c.sets * c.ways, 8);
    c.used = (u32 *)calloc((size_t)c.sets * c.ways, 4);
    c.dirty = (u8 *)calloc((size_t)c.sets * c.ways, 1);
}
static void free_cache(Cache &c) { free(c.tag); free(c.used); free(c.dirty); }
static void clear_cache(Cache &c) { memset(c.tag, 0, (size_t)c.sets * c.ways * 8); memset(c.dirty, 0, (size_t)c.sets * c.ways); }
// Whether a line (numbered from 1) is there; it is afterwards, in place of the one that was used longest ago.
static bool touch(Cache &c, u64 line, bool write, bool *evicts) {
    u32 first = (u32)(line % c.sets) * c.ways, oldest = first;
    c.clock++;
    for (u32 i = first; i < first + c.ways; i++) {
        if (c.tag[i] == line) { c.used[i] = c.clock; c.dirty[i] |= write; *evicts = false; return true; }
        if (!c.tag[oldest]) continue;
        if (!c.tag[i] || c.used[i] < c.used[oldest]) oldest = i;
    }
    *evicts = c.tag[oldest] && c.dirty[oldest];
    c.tag[oldest] = line;
    c.used[oldest] = c.clock;
    c.dirty[oldest] = write;
    return false;
}
static void touch_l2(Profile &p, Wave &w, u64 line, bool write, bool fetch) {
    Launch &l = *w.launch;
    u64 block = w.block->index[0] + l.grid[0] * (w.block->index[1] + (u64)l.grid[1] * w.block->index[2]);
    bool evicts, hit = touch(p.l2[block % p.model.dies], line, write, &evicts);
    p.total[hit ? P_L2_HIT : P_L2_MISS]++;
    if (!hit && fetch) p.total[P_FETCHED]++;
    if (evicts) p.total[P_WRITTEN]++;
}
INLINE u64 *counts_of(Wave &w, const Op &o) { return w.launch->profile->op + P_FIELDS * (u64)(&o - w.ops); }
// A line's number: buffers begin lines, wherever they lie in this process. 0 for an address outside.
static u64 line_of(Wave &w, u64 address, u32 size) {
    Launch &l = *w.launch;
    for (u32 i = 0; i < l.region_count; i++)
        if (address - l.regions[i].start < l.regions[i].size) return ((u64)(i + 1) << 40) + (address - l.regions[i].start) / size + 1;
    return 0;
}
// A vector memory instruction, with host addresses of its active lanes.
COLD static void count_memory(Wave &w, const Op &o, u32 bytes, bool write, const u64 *a) {
    Profile &p = *w.launch->profile;
    u64 *c = counts_of(w, o), seen[128], lanes = 0;
    u32 count = 0;
    for (u64 on = w.active; on; on &= on - 1) {
        u64 at = a[__builtin_ctzll(on)], first = line_of(w, at, p.model.line), last = line_of(w, at + bytes - 1, p.model.line);
        if (!first || !last) continue; // LDS or scratch by a flat address
        lanes++;
        for (u64 line = first; line <= last; line++) {
            u32 i = count;
            while (i > 0 && seen[i - 1] != line) i--;
            if (i == 0 && count < 128) seen[count++] = line;
        }
    }
    c[P_BYTES] += lanes * bytes;
    c[P_LINES] += count;
    c[P_IDEAL] += (lanes * bytes + p.model.line - 1) / p.model.line;
    for (u32 i = 0; i < count; i++) {
        bool evicts;
        if (!write && touch(p.l1, seen[i], false, &evicts)) { p.total[P_L1_HIT]++; continue; }
        if (!write) p.total[P_L1_MISS]++; // L1 writes through
        touch_l2(p, w, seen[i], write, !write);
    }
}
COLD static void count_scalar(Wave &w, const Op &o, u64 address, u32 bytes) {
    Profile &p = *w.launch->profile;
    counts_of(w, o)[P_BYTES] += bytes;
    u64 first = line_of(w, address, p.model.line), last = line_of(w, address + bytes - 1, p.model.line);
    for (u64 line = first; first && line <= last; line++) {
        bool evicts, hit = touch(p.scalar, line, false, &evicts);
        p.total[hit ? P_SCALAR_HIT : P_SCALAR_MISS]++;
        if (!hit) touch_l2(p, w, line, false, true);
    }
}
// Cycles of an LDS access: banks of four bytes; as many lanes at a time as fill them; the same word is read once.
COLD static void count_lds(Wave &w, const Op &o, u32 bytes, const u32 *at) {
    const u32 banks = w.launch->profile->model.banks;
    u32 words = (bytes + 3) / 4, group = banks / words < 1 ? 1 : banks / words;
    group = group > 32 ? 32 : group;
    u64 *c = counts_of(w, o);
    c[P_BYTES] += (u64)bytes * __builtin_popcountll(w.active);
    for (u32 first = 0; first < w.lanes; first += group) {
        u32 seen[128], count = 0, load[64] = {0}, most = 0;
        for (u32 l = first; l < first + group && l < w.lanes; l++) {
            if (!((w.active >> l) & 1)) continue;
            for (u32 k = 0; k < words; k++) {
                u32 word = at[l] / 4 + k, i = count;
                while (i > 0 && seen[i - 1] != word) i--;
                if (i || count == 128) continue;
                seen[count++] = word;
                if (++load[word % banks] > most) most = load[word % banks];
            }
        }
        c[P_LDS_CYCLES] += most;
        c[P_LDS_IDEAL] += most > 0;
    }
}
// What a wait has to wait for, if it has to. A stall is one for something that was issued after the last stall: what was
// issued before it, beside what it waited for, has been on its way since then.
COLD static void count_wait(Wave &w, const Op &o, u32 counter, u32 most) {
    u32 total = 0, scalar = 0, which = counter == LGKM, newest = 0, left;
    for (u32 i = 0; i < w.outstanding; i++)
        if (w.queue[i].counters & counter) { total++; scalar += w.queue[i].scalar; }
    if (total <= most) return;
    left = total - most;
    for (u32 i = 0; i < w.outstanding && left; i++)
        if (w.queue[i].counters & counter) { left--; if (w.queue[i].batch[which] > newest) newest = w.queue[i].batch[which]; }
    u32 cause = counter != LGKM ? 0 : scalar ? 2 : 1;
    u64 *c = counts_of(w, o);
    c[P_WAIT_MEMORY + cause]++;
    if (newest < w.batch[which]) return;
    c[P_STALL_MEMORY + cause]++;
    w.batch[which]++;
}
INLINE void count_run(Wave &w, const Op &o) {
    u64 *c = counts_of(w, o);
    c[P_LINE] = o.line;
    c[P_RUNS]++;
    c[P_LANES] += (u64)__builtin_popcountll(exec(w) & w.all);
}
static void begin_block(Profile &p, u32 waves) { // its CU's caches are taken to hold nothing of use to it
    clear_cache(p.l1);
    clear_cache(p.scalar);
    p.total[P_WAVES] += waves;
}
// Forgets what was counted, not what the caches hold: blocks from here on meet caches that others filled.
static void restart(Profile &p) {
    memset(p.op, 0, (size_t)p.ops * P_FIELDS * 8);
    memset(p.total, 0, sizeof p.total);
    for (u32 d = 0; d < p.model.dies; d++) memset(p.l2[d].dirty, 0, (size_t)p.l2[d].sets * p.l2[d].ways);
}
static void flush(Profile &p) {
    for (u32 d = 0; d < p.model.dies; d++)
        for (u32 i = 0; i < p.l2[d].sets * p.l2[d].ways; i++) p.total[P_WRITTEN] += p.l2[d].tag[i] && p.l2[d].dirty[i];
}
