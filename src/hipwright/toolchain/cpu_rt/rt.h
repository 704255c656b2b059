// The runtime of every cpu kernel library: fibers, waves, barriers, bounds and races. See docs/cpu-target.md.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define HW_HIDDEN __attribute__((visibility("hidden")))
#define HW_EXPORT __attribute__((visibility("default")))
#define READ_ONLY "a write to an input or parameter"

enum { HW_LOOPS = 32, HW_DEPTH = 6, HW_MAX_BLOCK = 1024, HW_STACK = 128 << 10 };
enum { HW_MAX_FIBERS = 24576, HW_KEPT_FIBERS = 8192 }; // at once; and after a launch, as several libraries share a process
enum { HW_FORWARD, HW_REVERSE, HW_SHUFFLE };
enum { HW_OK, HW_OUT_OF_BOUNDS, HW_LAUNCH_ERROR, HW_TIMEOUT, HW_RACE, HW_READ_ONLY, HW_MISALIGNED };
// An access: its kind, of an atomic also whether it reads and writes at once, order (__ATOMIC_*) and scope, and the
// alignment that its instruction promises, as a power of two.
enum { HW_READ = 0, HW_WRITE = 1, HW_ATOMIC = 2, HW_KIND = 3, HW_RMW = 4, HW_ORDER = 4, HW_SCOPE = 8, HW_ALIGN = 12 };
enum { INPUT = 1, READ_ALONE = 2 };
enum { SCOPE_WAVE, SCOPE_BLOCK, SCOPE_DEVICE };
enum { ST_NEW, ST_READY, ST_RUN, ST_WAVE, ST_BARRIER, ST_DONE };
enum { OP_PERM, OP_BALLOT, OP_FIRST, OP_PUSH, OP_SYNC, OP_MFMA };
enum { COUNT_READ, COUNT_WRITE, COUNT_LDS, COUNT_BARRIER, COUNT_WAVE, COUNT_ATOMIC, COUNT_FLOAT_ATOMIC, COUNT_UNCHECKED,
       COUNTS };

// The site of a wave operation, barrier or atomic: its position in its function's structured order, computed from the
// control flow graph by toolchain/cpu/sites.py. nest lists the loops around it, outermost first.
typedef struct {
    uint32_t line, depth, pos, unused;
    struct { uint32_t pos, loop; } nest[HW_DEPTH];
} hw_site;

typedef struct { // one buffer of the launch, as device/cpu/arguments.py passes it
    uint64_t start, size;
    uint32_t granule; // bytes of one element: a race is tracked per element, byte-exact within it
    int32_t argument;
    uint64_t shadow; // set by the runtime
    uint64_t read_only; // READ_ALONE: by its text the kernel writes nothing through the arguments that point here
} hw_region;

typedef struct { uint32_t block[3], thread[3], access, line; } hw_party;

typedef struct { // mirrored by device/cpu/abi.py
    void (*entry)(uint64_t *);
    uint64_t *args;
    uint32_t grid[3], block[3];
    uint32_t wave, order, lds_dynamic, lds_static, loops, checked, lds_kept;
    uint64_t seed, poison, limit_us;
    hw_region *regions;
    uint32_t region_count, status;
    hw_party at, other;
    uint64_t address;
    uint32_t bytes, alignment, unused; // alignment: what the access's instruction promises
    int32_t region; // index into regions of the nearest buffer; -1 none, -2 LDS, -3 the thread's stack
    uint64_t counts[COUNTS];
    char message[192];
} hw_launch;

typedef struct hw_fiber {
    char *stack; // HW_STACK bytes above a guard page
    struct hw_fiber *next;
    uint32_t number;
} hw_fiber;

typedef struct hw_thread { // what every switch touches is one line of the cache
    void *sp;
    void *data;
    const hw_site *site;
    hw_fiber *fiber;
    struct hw_wave *home;
    uint32_t index[3], linear, wave_time;
    uint8_t state, op, lane, wave; // state: of a lane that does not run and is not among the wave's ready ones
    uint32_t iterations[HW_LOOPS];
} __attribute__((aligned(64))) hw_thread;

// ready: lanes that can run; waiting: lanes in a wave operation. first: one of those; mixed: they may be at different
// places; barriers: lanes at a barrier. a, b, other, result: operands of a lane's wave operation and what it returns.
typedef struct hw_wave {
    hw_thread *threads, *first;
    uint64_t ready, waiting;
    uint32_t count, cursor, mixed, barriers;
    uint8_t order[64];
    uint64_t a[64], other[64], result[64];
    uint32_t b[64];
} hw_wave;

typedef struct {
    uint64_t linear;
    uint32_t index[3];
    uint32_t threads_count, waves_count, position, alive, at_barrier, epoch_time;
    uint32_t again; // some lane is ready that this pass has already gone by
    const hw_site *barrier;
    int64_t votes, voters;
    uint8_t wave_order[HW_MAX_BLOCK / 32];
    struct hw_block_sync *sync; // of the checked build
    hw_wave waves[HW_MAX_BLOCK / 32];
    hw_thread threads[HW_MAX_BLOCK];
    char *saved_lds;
} hw_block;

typedef struct { uint32_t x, y, z; } hw_dim;

// What the kernel reads directly.
extern HW_HIDDEN hw_dim hw_thread_index, hw_block_index, hw_block_dim, hw_grid_dim;
extern HW_HIDDEN uint32_t hw_lane;
extern HW_HIDDEN uint64_t hw_poison;
extern HW_HIDDEN char hw_dyn_lds[];
extern HW_HIDDEN const hw_site hw_sites[];

// Shared by the runtime's parts.
static struct {
    hw_launch *launch;
    hw_thread *thread;
    hw_block *block;
    void *main_sp;
    uint64_t next_block, blocks, stride, shift, random, deadline_us;
    hw_fiber *free_fibers;
    uint32_t fibers, now, launch_time, busy, residents, turn, ticks_here, tick_waits, atomics_here, preemptions;
    hw_block *resident[64];
} hw;

HW_HIDDEN void hw_switch(void **save, void *to);
static __attribute__((noreturn)) void hw_stop(uint32_t status, const char *message);
static hw_thread *hw_pick(void);
static int hw_is_before(const hw_thread *t, const hw_thread *u);
static int hw_resolve(hw_wave *w);
static void hw_mfma_run(hw_wave *w);
static char *hw_map(size_t bytes);
static uint64_t hw_random(void);
