// The executor of AMD machine code: registers, micro-ops, and what a launch holds. See docs/sim-target.md.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef u32 V __attribute__((vector_size(32))); // eight lanes of a register
typedef i32 VI __attribute__((vector_size(32)));
typedef float VF __attribute__((vector_size(32)));
typedef u64 Q __attribute__((vector_size(64))); // eight lanes of a register pair
typedef i64 QI __attribute__((vector_size(64)));
typedef double QF __attribute__((vector_size(64)));
typedef u16 H __attribute__((vector_size(16)));
typedef i16 HI __attribute__((vector_size(16)));
typedef _Float16 HF __attribute__((vector_size(16)));
#define INLINE static inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold))

enum { NONE, VGPR, SGPR, LITERAL, SCC }; // kinds of an operand
enum { NEG = 1, ABS = 2, SEXT = 4 };
enum { VCC = 106, M0 = 124, EXEC = 126 };
enum { OK, OUT_OF_BOUNDS, LAUNCH_ERROR, TIMEOUT, RACE, READ_ONLY, MISALIGNED, UNSUPPORTED };
enum { COUNT_READ, COUNT_WRITE, COUNT_LDS, COUNT_BARRIER, COUNT_WAVE, COUNT_ATOMIC, COUNT_FLOAT_ATOMIC, COUNT_UNCHECKED, COUNTS };
enum { VM = 1, LGKM = 2, VS = 4 }; // counters that a wave waits for
enum { NO_DPP, DPP16, DPP8 };

struct Row { V c[8]; } __attribute__((aligned(64))); // one register of 64 lanes

struct Src { // an operand; kind SGPR or VGPR: `reg` is the first register
    u8 kind, mods, sel, unused;
    u32 reg;
    u64 value; // LITERAL
    const Row *row; // LITERAL, set at loading: the low word in each lane
};

struct Wave;
struct Op;
typedef void (*Handler)(Wave &, const Op &);

struct Op { // a decoded instruction, written by toolchain/sim/encode.py
    u16 code; // index into the program's list of handlers
    u8 count, omod, clamp, dpp, dst_sel, dst_unused;
    u16 dpp_ctrl;
    u8 row_mask, bank_mask, bound_ctrl, fetch_inactive, op_sel, op_sel_hi;
    u8 neg_lo, neg_hi, flags, segment;
    i32 offset, offset2;
    u32 target, line, extra, data;
    Handler run; // set at loading
    Src dst[2], src[4];
};

struct Entry { const char *name; Handler run; };
struct Region { u64 start, size; u32 granule; i32 argument; u64 shadow, read_only; };
struct Party { u32 block[3], thread[3], access, line; };

struct Launch { // mirrored by device/sim/abi.py
    const struct Program *program;
    const struct Kernel *kernel;
    const u8 *kernarg;
    u64 kernarg_bytes;
    u32 grid[3], block[3];
    u32 order, lds_dynamic, lds_kept, checked;
    u64 seed, poison, limit_us;
    Region *regions;
    u32 region_count, status;
    Party at, other;
    u64 address;
    u32 bytes, reg;
    i32 region;
    u32 most_blocks; // blocks to run, from the first on; 0: all
    u64 counts[COUNTS];
    char message[256];
    struct Profile *profile; // null unless the launch is profiled
};

struct Kernel { // the properties of a kernel, as its directives say; sgprs are -1 where they are not passed
    u32 entry, vgprs, lds, scratch, wave, mode, item_ids, packed_ids;
    i32 kernarg_sgpr, dispatch_sgpr, scratch_sgpr, group_x, group_y, group_z, scratch_offset, flat_scratch;
    u32 preload, preload_sgpr;
};

struct Program {
    u32 count, literals;
    Op *op;
    Row *rows;
};

struct Pending { // lanes, lds, bytes: a load to LDS of `bytes` for each lane, from byte `lds` on
    u8 counters, ordered, scalar, count;
    u16 reg, lds_write;
    u32 line, lds, bytes;
    u64 lanes;
    u32 batch[2]; // of the wave's, as it was issued
};

struct Block;
struct Wave {
    u32 s[128];
    u8 s_defined[128], s_pending[128];
    u32 s_bits[128]; // of a scalar register that is not defined: its undefined bits
    u64 s_lanes[128]; // of a mask of lanes that begins at this register: the lanes whose bits are undefined
    Row *v;
    u64 *v_defined, *v_partial; // lanes of each register that are defined; lanes whose undefined bits v_bits has
    Row *v_bits;
    struct Tables *tables; // of masks with undefined lanes, see undefined.h
    u8 *v_pending;
    u64 undefined, active, all, mask_of; // active: lanes that the current instruction writes
    Row mask, t[8];
    u32 scc, scc_defined, pc, chunks, lanes, number, state, mode, outstanding, lds_writes, direct, epoch;
    u32 batch[2]; // of a profile: stalls on memory, and on LDS or scalar loads, so far
    u32 stop, first_thread, barrier_pc, last_unwaited;
    Pending queue[80];
    u8 *scratch;
    Block *block;
    Launch *launch;
    const Kernel *kernel;
    const Op *ops;
    u64 executed;
};

struct Block {
    u32 index[3], waves, alive, waiting, epoch, lds_bytes;
    u8 *lds;
    struct Shadow *shadow; // LDS accesses since the last barrier, of a checked launch
    Wave *wave;
    Launch *launch;
    const Kernel *kernel;
};

enum { RUNNING, AT_BARRIER, ENDED, YIELDED };

COLD static void fail(Wave &w, const Op &o, u32 status, const char *format, ...) __attribute__((format(printf, 4, 5)));
INLINE u64 pair(const Wave &w, u32 reg) { u64 x; memcpy(&x, &w.s[reg], 8); return x; }
INLINE u64 exec(const Wave &w) { return pair(w, EXEC); }

#define REGISTER(name, fn) static const Entry entry_##name __attribute__((used, section("simops"))) = {#name, fn};
#define OP(name) static void name(Wave &w, const Op &o); REGISTER(name, name) static void name(Wave &w, const Op &o)
