// One translation unit: loading of programs, and the run of a launch. toolchain/sim/runtime.py compiles this file.
#include <stdarg.h>
#include <stdio.h>

#include "core.h"
#include "undefined.h"
#include "valu_float.h"
#include "valu_int.h"
#include "valu_16.h"
#include "salu.h"
#include "memory.h"
#include "lds.h"
#include "mfma.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
enum { SLICE = 1 << 14, RESIDENT = 64, MAX_WAVES = 32 };
extern "C" const Entry __start_simops[], __stop_simops[];

COLD static void fail(Wave &w, const Op &o, u32 status, const char *format, ...) {
    Launch &l = *w.launch;
    w.stop = 1;
    w.state = ENDED;
    if (l.status) return;
    va_list list;
    va_start(list, format);
    vsnprintf(l.message, sizeof l.message, format, list);
    va_end(list);
    l.status = status;
    l.at.line = o.line;
    for (int i = 0; i < 3; i++) l.at.block[i] = w.block->index[i];
    u64 on = w.active & exec(w);
    u32 t = w.first_thread + (on ? (u32)__builtin_ctzll(on) : 0), x = l.block[0], y = l.block[1];
    l.at.thread[0] = t % x;
    l.at.thread[1] = t / x % y;
    l.at.thread[2] = t / x / y;
}

// ---------------------------------------------------------------- programs

EXPORT u32 sim_handlers(void) { return (u32)(__stop_simops - __start_simops); }
EXPORT const char *sim_handler(u32 i) { return __start_simops[i].name; }
EXPORT u32 sim_op_bytes(void) { return sizeof(Op); }

static Row *literal_row(Program *p, u64 value) { // the rows of one value, shared by all operands that hold it
    for (u32 i = 0; i < p->literals; i += 2)
        if (((u32 *)&p->rows[i])[0] == (u32)value && ((u32 *)&p->rows[i + 1])[0] == (u32)(value >> 32)) return &p->rows[i];
    Row *r = &p->rows[p->literals];
    p->literals += 2;
    for (int c = 0; c < 8; c++) { r[0].c[c] = broadcast((u32)value); r[1].c[c] = broadcast((u32)(value >> 32)); }
    return r;
}
// ops: `count` encoded instructions; names: the handler of each `code`.
EXPORT Program *sim_load(const Op *ops, u32 count, const char *const *names, u32 name_count) {
    Program *p = (Program *)calloc(1, sizeof(Program));
    Handler *table = (Handler *)calloc(name_count, sizeof(Handler));
    for (u32 i = 0; i < name_count; i++) {
        table[i] = unsupported;
        for (const Entry *e = __start_simops; e < __stop_simops; e++) if (!strcmp(e->name, names[i])) table[i] = e->run;
    }
    u32 literals = 0;
    for (u32 i = 0; i < count; i++) for (int k = 0; k < 4; k++) literals += ops[i].src[k].kind == LITERAL;
    p->count = count;
    p->op = (Op *)malloc(sizeof(Op) * count);
    p->rows = (Row *)aligned_alloc(64, sizeof(Row) * 2 * (literals + 1));
    memcpy(p->op, ops, sizeof(Op) * count);
    for (u32 i = 0; i < count; i++) {
        p->op[i].run = table[p->op[i].code];
        for (int k = 0; k < 4; k++) if (p->op[i].src[k].kind == LITERAL) p->op[i].src[k].row = literal_row(p, p->op[i].src[k].value);
    }
    free(table);
    return p;
}
EXPORT void sim_free(Program *p) {
    free(p->op);
    free(p->rows);
    free(p);
}

// ---------------------------------------------------------------- waves

static void run_default(Wave &w, u32 budget) {
    const Op *ops = w.ops;
    for (u32 n = 0; n < budget; n++) {
        const Op &o = ops[w.pc++];
        o.run(w, o);
        if (__builtin_expect(w.stop, 0)) { w.executed += n; return; }
    }
    w.executed += budget;
}
#ifdef __x86_64__
// Rounding and denormals of one format, by its two fields of MODE.
static u32 mxcsr_of(u32 round, u32 denormals) {
    const u32 rounds[] = {0, 2, 1, 3};
    return 0x1f80 | rounds[round & 3] << 13 | (denormals & 1 ? 0 : 0x40) | (denormals & 2 ? 0 : 0x8000);
}
static void run_mode(Wave &w, u32 budget) {
    for (u32 n = 0; n < budget && !w.stop; n++) {
        const Op &o = w.ops[w.pc++];
        if (o.flags & 8) __builtin_ia32_ldmxcsr(mxcsr_of(w.mode, w.mode >> 4));
        else if (o.flags & 16) __builtin_ia32_ldmxcsr(mxcsr_of(w.mode >> 2, w.mode >> 6));
        o.run(w, o);
        __builtin_ia32_ldmxcsr(0x1f80);
    }
    w.executed += budget;
}
#endif
static void run_profiled(Wave &w, u32 budget) {
    for (u32 n = 0; n < budget && !w.stop; n++) {
        count_run(w, w.ops[w.pc]);
#ifdef __x86_64__
        run_mode(w, 1);
#else
        run_default(w, 1);
#endif
    }
}
static void run_wave(Wave &w, u32 budget) {
    w.state = RUNNING;
    do { // s_setreg stops it, so that a new MODE counts from then on
        w.stop = 0;
        if (__builtin_expect(w.launch->profile != nullptr, 0)) { run_profiled(w, budget); continue; }
#ifdef __x86_64__
        if ((w.mode & 0xff) != 0xf0) { run_mode(w, budget); continue; }
#endif
        run_default(w, budget);
    } while (w.stop && w.state == RUNNING);
}

static void give(Wave &w, i32 reg, u32 value) {
    if (reg < 0) return;
    w.s[reg] = value;
    w.s_defined[reg] = 1;
}
static void give64(Wave &w, i32 reg, u64 value) {
    give(w, reg, (u32)value);
    if (reg >= 0) give(w, reg + 1, (u32)(value >> 32));
}
// The registers as the command processor sets them when a wave starts.
static void start_wave(Wave &w, Block &b, u32 number) {
    Launch &l = *b.launch;
    const Kernel &k = *b.kernel;
    u32 threads = l.block[0] * l.block[1] * l.block[2];
    w.first_thread = number * k.wave;
    u32 here = threads - w.first_thread < k.wave ? threads - w.first_thread : k.wave;
    for (u32 i = 0; i < 128; i++) w.s[i] = (u32)l.poison;
    memset(w.s_defined, 0, sizeof w.s_defined);
    memset(w.s_pending, 0, sizeof w.s_pending);
    memset(w.s_bits, 255, sizeof w.s_bits);
    memset(w.s_lanes, 0, sizeof w.s_lanes);
    memset(w.v_defined, 0, 8 * k.vgprs);
    memset(w.v_pending, 0, k.vgprs);
    w.all = k.wave == 64 ? ~0ull : 0xffffffffull;
    w.lanes = k.wave;
    w.chunks = k.wave / 8;
    w.number = number;
    w.pc = k.entry;
    w.mode = k.mode;
    w.scc = w.scc_defined = w.outstanding = w.lds_writes = w.direct = w.undefined = 0;
    w.executed = 0;
    w.mask_of = 0;
    memset(&w.mask, 0, sizeof w.mask);
    w.state = RUNNING;
    w.block = &b;
    w.launch = &l;
    w.kernel = &k;
    w.ops = l.program->op;
    u64 on = here == 64 ? ~0ull : (1ull << here) - 1;
    give64(w, EXEC, on);
    give(w, VCC, 0); // VCC and M0 start with what the last wave left; clang reads neither before writing it
    w.s_defined[VCC] = 0;
    give64(w, k.kernarg_sgpr, (u64)l.kernarg);
    give64(w, k.dispatch_sgpr, (u64)l.kernarg + l.kernarg_bytes - 64);
    if (k.scratch_sgpr >= 0) { give64(w, k.scratch_sgpr, PRIVATE_APERTURE << 32); give64(w, k.scratch_sgpr + 2, 0x00ffffff); }
    give64(w, k.flat_scratch, 0);
    give(w, k.group_x, b.index[0]);
    give(w, k.group_y, b.index[1]);
    give(w, k.group_z, b.index[2]);
    give(w, k.scratch_offset, 0);
    for (u32 i = 0; i < k.preload; i++) { u32 x; memcpy(&x, l.kernarg + 4 * i, 4); give(w, (i32)(k.preload_sgpr + i), x); }
    for (u32 lane = 0; lane < here; lane++) {
        u32 t = w.first_thread + lane, x = t % l.block[0], y = t / l.block[0] % l.block[1], z = t / l.block[0] / l.block[1];
        if (k.packed_ids) {
            set_word(w, 0, lane, x | (k.item_ids > 0 ? y << 10 : 0) | (k.item_ids > 1 ? z << 20 : 0));
        } else {
            set_word(w, 0, lane, x);
            if (k.item_ids > 0) set_word(w, 1, lane, y);
            if (k.item_ids > 1) set_word(w, 2, lane, z);
        }
    }
    w.v_defined[0] = on;
    if (!k.packed_ids) for (u32 i = 1; i <= k.item_ids; i++) w.v_defined[i] = on;
}

// ---------------------------------------------------------------- blocks

static Block *make_block(Launch &l) {
    const Kernel &k = *l.kernel;
    u32 threads = l.block[0] * l.block[1] * l.block[2];
    Block *b = (Block *)calloc(1, sizeof(Block));
    b->waves = (threads + k.wave - 1) / k.wave;
    b->lds_bytes = k.lds + l.lds_dynamic;
    b->lds = (u8 *)calloc(1, b->lds_bytes + 16);
    b->shadow = l.checked && b->lds_bytes && b->waves > 1 ? (Shadow *)calloc(b->lds_bytes, sizeof(Shadow)) : nullptr;
    b->launch = &l;
    b->kernel = &k;
    b->wave = (Wave *)aligned_alloc(64, sizeof(Wave) * b->waves);
    for (u32 i = 0; i < b->waves; i++) {
        Wave &w = b->wave[i];
        memset(&w, 0, sizeof w);
        w.v = (Row *)aligned_alloc(64, sizeof(Row) * k.vgprs);
        for (u32 r = 0; r < k.vgprs; r++) for (int c = 0; c < 8; c++) w.v[r].c[c] = broadcast((u32)l.poison);
        w.v_defined = (u64 *)calloc(k.vgprs, 8);
        w.v_partial = (u64 *)calloc(k.vgprs, 8);
        w.v_bits = (Row *)aligned_alloc(64, sizeof(Row) * k.vgprs);
        w.v_pending = (u8 *)calloc(k.vgprs, 1);
        w.scratch = (u8 *)calloc(k.scratch + 1, k.wave);
    }
    return b;
}
static void free_block(Block *b) {
    for (u32 i = 0; i < b->waves; i++) {
        Wave &w = b->wave[i];
        free(w.v); free(w.v_defined); free(w.v_partial); free(w.v_bits); free(w.tables); free(w.v_pending); free(w.scratch);
    }
    free(b->wave); free(b->lds); free(b->shadow); free(b);
}
static void start_block(Block &b, u64 number, bool keep_lds) {
    Launch &l = *b.launch;
    b.index[0] = (u32)(number % l.grid[0]);
    b.index[1] = (u32)(number / l.grid[0] % l.grid[1]);
    b.index[2] = (u32)(number / l.grid[0] / l.grid[1]);
    b.alive = b.waves;
    b.waiting = 0;
    b.epoch++;
    if (!keep_lds) for (u32 i = 0; i + 8 <= b.lds_bytes + 16; i += 8) memcpy(b.lds + i, &l.poison, 8);
    for (u32 i = 0; i < b.waves; i++) start_wave(b.wave[i], b, i);
    if (l.profile) begin_block(*l.profile, b.waves);
}
static u64 next_random(u64 &state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 33;
}
static void release_barrier(Block &b) {
    const Wave *first = nullptr;
    for (u32 i = 0; i < b.waves; i++) {
        Wave &w = b.wave[i];
        if (w.state != AT_BARRIER) continue;
        if (first && first->barrier_pc != w.barrier_pc) {
            const Op &o = w.ops[w.barrier_pc - 1];
            w.active = exec(w);
            fail(w, o, LAUNCH_ERROR, "barrier divergence: wave %u waits at another barrier, assembly line %u", first->number, w.ops[first->barrier_pc - 1].line);
            return;
        }
        first = first ? first : &w;
    }
    b.epoch++;
    for (u32 i = 0; i < b.waves; i++) if (b.wave[i].state == AT_BARRIER) b.wave[i].state = RUNNING;
}
// Run a block until it ends (true), or until all of its waves seem to wait for other blocks.
static bool run_block(Block &b, u64 &random, i64 deadline) {
    Launch &l = *b.launch;
    u32 order[MAX_WAVES];
    for (u32 idle = 0; idle < 8;) {
        u32 alive = 0, waiting = 0, spun = 0;
        for (u32 i = 0; i < b.waves; i++) order[i] = l.order == 1 ? b.waves - 1 - i : i;
        if (l.order == 2)
            for (u32 i = b.waves - 1; i > 0 && i < b.waves; i--) { u32 j = next_random(random) % (i + 1), x = order[i]; order[i] = order[j]; order[j] = x; }
        for (u32 i = 0; i < b.waves; i++) {
            Wave &w = b.wave[order[i]];
            if (w.state == RUNNING || w.state == YIELDED) {
                run_wave(w, l.order == 2 ? 64 + next_random(random) % 2048 : SLICE);
                if (l.status) return true;
                spun += w.state == RUNNING || w.state == YIELDED;
            }
            alive += w.state != ENDED;
            waiting += w.state == AT_BARRIER;
        }
        if (!alive) return true;
        if (waiting == alive) { release_barrier(b); if (l.status) return true; idle = 0; }
        else if (spun) idle++;
        timespec now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        if (now.tv_sec * 1000000ll + now.tv_nsec / 1000 > deadline) {
            l.status = TIMEOUT;
            snprintf(l.message, sizeof l.message, "the launch takes more than %.3g s", (double)l.limit_us * 1e-6);
            for (int i = 0; i < 3; i++) l.at.block[i] = b.index[i];
            return true;
        }
    }
    return false;
}
static u64 gcd(u64 a, u64 b) { while (b) { u64 t = a % b; a = b; b = t; } return a; }

EXPORT void sim_run(Launch *launch) {
    Launch &l = *launch;
    u64 blocks = (u64)l.grid[0] * l.grid[1] * l.grid[2], random = l.seed * 2 + 1, stride = 1, shift = 0, next = 0;
    const u64 end = l.most_blocks && l.most_blocks < blocks ? l.most_blocks : blocks;
    if (l.order == 2) {
        for (int i = 0; i < 4; i++) next_random(random);
        stride = next_random(random) % (blocks < 1u << 20 ? blocks : 1u << 20) | 1;
        while (gcd(stride, blocks) != 1) stride++;
        shift = next_random(random) % blocks;
    }
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    i64 deadline = now.tv_sec * 1000000ll + now.tv_nsec / 1000 + (i64)l.limit_us;
    Block *resident[RESIDENT], *spare = nullptr;
    u32 count = 0;
    while (!l.status && (next < end || count)) {
        Block *b;
        if (next < end && count < RESIDENT) {
            u64 n = l.order == 1 ? blocks - 1 - next : (next * stride + shift) % blocks;
            bool first = !spare;
            if (l.profile && next && next == l.profile->model.skipped) restart(*l.profile);
            b = spare ? spare : make_block(l);
            spare = nullptr;
            start_block(*b, n, l.lds_kept && !first);
            next++;
        } else {
            b = resident[0];
            for (u32 i = 1; i < count; i++) resident[i - 1] = resident[i];
            count--;
        }
        if (run_block(*b, random, deadline)) { if (spare) free_block(spare); spare = b; }
        else {
            resident[count++] = b;
            // the blocks that wait are run again before another one begins
            for (u32 i = 0; i + 1 < count && !l.status;) {
                Block *other = resident[i];
                if (!run_block(*other, random, deadline)) { i++; continue; }
                for (u32 j = i + 1; j < count; j++) resident[j - 1] = resident[j];
                count--;
                if (spare) free_block(spare);
                spare = other;
            }
        }
    }
    for (u32 i = 0; i < count; i++) free_block(resident[i]);
    if (spare) free_block(spare);
    if (l.profile) flush(*l.profile);
}

// ---------------------------------------------------------------- profiles

EXPORT Profile *sim_profile(const Program *program, const CacheModel *model) {
    Profile *p = (Profile *)calloc(1, sizeof(Profile));
    p->model = *model;
    p->ops = program->count;
    p->op = (u64 *)calloc((size_t)program->count * P_FIELDS, 8);
    make_cache(p->l1, model->l1_bytes, model->line, L1_WAYS);
    make_cache(p->scalar, SCALAR_BYTES, model->line, SCALAR_WAYS);
    p->l2 = (Cache *)calloc(model->dies, sizeof(Cache));
    for (u32 d = 0; d < model->dies; d++) make_cache(p->l2[d], model->l2_bytes, model->line, L2_WAYS);
    return p;
}
EXPORT const u64 *sim_profile_ops(const Profile *p) { return p->op; }
EXPORT const u64 *sim_profile_totals(const Profile *p) { return p->total; }
EXPORT void sim_profile_free(Profile *p) {
    free_cache(p->l1);
    free_cache(p->scalar);
    for (u32 d = 0; d < p->model.dies; d++) free_cache(p->l2[d]);
    free(p->l2);
    free(p->op);
    free(p);
}
