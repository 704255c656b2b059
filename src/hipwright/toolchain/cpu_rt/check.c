// The checked build: every access is compared with the launch's memory, and ordered against earlier accesses.
//
// Time is one counter that steps at each barrier, wave operation and atomic. An access is ordered after a recorded one
// when the same thread made it, when a barrier of its block, or a wave operation both lanes took part in, lies between,
// or when atomics and fences order it (sync.c). Two atomics are no race when the scope of both includes the other;
// `volatile` accesses are like others.

typedef struct { uint32_t time, block; uint16_t thread, line; uint8_t mask, atomic, used, pad; } hw_record;
typedef struct { hw_record write, read[2]; } hw_cell; // atomic: 1 + scope

enum { GLOBAL = -4, LDS_GRANULE = 4 };
static const uint64_t SHADOW_BYTES = 2ull << 30, REGION_SHADOWED = 64ull << 20;
static char *hw_shadow;
static uint64_t hw_shadow_room;
static uint32_t hw_wave_shift; // a wave has 32 or 64 lanes
static uint32_t hw_contended; // the last access was to what another thread has used in this launch
static hw_region hw_own[3]; // static LDS, dynamic LDS, module variables
#define INLINE inline __attribute__((always_inline))
enum { RECENT = 64 };
static hw_region *hw_recent[RECENT]; // where accesses of a line went: lines alternate, and few of them change their buffer
extern char __start_hw_data[] __attribute__((weak, visibility("hidden")));
extern char __stop_hw_data[] __attribute__((weak, visibility("hidden")));
extern char __start_hw_const[] __attribute__((weak, visibility("hidden")));
extern char __stop_hw_const[] __attribute__((weak, visibility("hidden")));

// Offsets into the shadow, plus one, until its address is known. Huge regions have no race detection; what the launch
// does not write needs none, as a write is refused.
static uint64_t give_shadow(hw_region *r, uint64_t used) {
    r->shadow = 0;
    if (r->read_only) return used;
    uint64_t cells = r->size / r->granule + 2, bytes = cells * sizeof(hw_cell);
    if (r->size > REGION_SHADOWED || used + bytes > SHADOW_BYTES) {
        hw.launch->counts[COUNT_UNCHECKED]++;
        return used;
    }
    r->shadow = used + 1;
    return used + (bytes + 63) / 64 * 64;
}

static hw_region *region_at(uint32_t i) { return i < 3 ? &hw_own[i] : &hw.launch->regions[i - 3]; }

// Clear all records: their times would look recent.
static void hw_forget(void) {
    if (hw_shadow) munmap(hw_shadow, hw_shadow_room);
    hw_shadow = NULL;
    sync_forget();
}

static void hw_check_begin(void) {
    hw_launch *l = hw.launch;
    if (!l->checked) return;
    sync_launch();
    hw_wave_shift = __builtin_ctz(l->wave);
    hw_own[0] = (hw_region){(uint64_t)__start_hw_lds, static_lds(), LDS_GRANULE, -2, 0, 0};
    hw_own[1] = (hw_region){(uint64_t)hw_dyn_lds, l->lds_dynamic, LDS_GRANULE, -2, 0, 0};
    hw_own[2] = (hw_region){(uint64_t)__start_hw_data, __stop_hw_data - __start_hw_data, LDS_GRANULE, GLOBAL, 0, 0};
    for (int i = 0; i < RECENT; i++) hw_recent[i] = &hw_own[0];
    uint64_t used = 0;
    for (uint32_t i = 0; i < l->region_count + 3; i++) used = give_shadow(region_at(i), used);
    if (!hw_shadow || used > hw_shadow_room) {
        if (hw_shadow) munmap(hw_shadow, hw_shadow_room);
        hw_shadow = NULL;
        hw_shadow = hw_map(hw_shadow_room = used);
    }
    for (uint32_t i = 0; i < l->region_count + 3; i++)
        if (region_at(i)->shadow) region_at(i)->shadow += (uint64_t)hw_shadow - 1;
}

static int both_atomic(const hw_record *a, const hw_record *b) {
    if (!a->atomic || !b->atomic) return 0;
    return a->block == b->block || (a->atomic > SCOPE_DEVICE && b->atomic > SCOPE_DEVICE);
}

// Whether what r records is ordered before mine, as far as barriers show it. By value and inline, as all that runs for
// every access: a record in registers is written at once.
static INLINE int settled(const hw_record *r, hw_record mine) {
    return r->time < hw.launch_time ||
           (r->block == mine.block && (r->thread == mine.thread || r->time < hw.block->epoch_time));
}

// The same by a wave operation, or by atomics.
static INLINE int ordered_otherwise(const hw_record *r, hw_record mine) {
    const hw_thread *t = hw.thread;
    if (r->block == mine.block && r->thread >> hw_wave_shift == t->wave && r->time < t->wave_time) return 1;
    return hw_object_count || hw_sync_unknown ? ordered_by_atomics(r->block, r->thread, r->time) : 0;
}

static INLINE int ordered(const hw_record *r, hw_record mine) { return settled(r, mine) || ordered_otherwise(r, mine); }

// ---- bounds and races

static __attribute__((noreturn, noinline)) void out_of_bounds(uint64_t address, uint32_t size, uint32_t access, uint32_t line) {
    hw_launch *l = hw.launch;
    l->address = address, l->bytes = size, l->region = nearest(address);
    l->at.access = access & HW_KIND, l->at.line = line;
    for (int i = 0; i < 2; i++)
        if (address + 4096 >= hw_own[i].start && address < hw_own[i].start + hw_own[i].size + 4096) l->region = -2;
    hw_stop(HW_OUT_OF_BOUNDS, "memory access outside every buffer");
}

static void tell_access(const hw_region *r, uint64_t address, uint32_t size, uint32_t access, uint32_t line) {
    hw_launch *l = hw.launch;
    l->address = address, l->bytes = size, l->alignment = 1u << (access >> HW_ALIGN);
    l->region = r >= l->regions && r < l->regions + l->region_count ? (int32_t)(r - l->regions) : r->argument;
    l->at.access = access & HW_KIND, l->at.line = line;
}

static __attribute__((noreturn, noinline)) void race(const hw_region *r, const hw_record *before, int wrote, uint64_t address,
                                                     uint32_t size, uint32_t access, uint32_t line) {
    hw_launch *l = hw.launch;
    tell_access(r, address, size, access, line);
    l->other.access = wrote | (before->atomic ? HW_ATOMIC : 0), l->other.line = before->line;
    uint64_t n = before->block;
    l->other.block[0] = n % l->grid[0], l->other.block[1] = n / l->grid[0] % l->grid[1];
    l->other.block[2] = n / l->grid[0] / l->grid[1];
    const hw_thread *t = &hw.block->threads[before->thread];
    for (int i = 0; i < 3; i++) l->other.thread[i] = t->index[i];
    hw_stop(HW_RACE, "data race: two threads use the same element in no fixed order, and one writes");
}

// Ends the launch for an access that is inside a buffer, but not allowed.
static __attribute__((noreturn, noinline)) void refuse(const hw_region *r, uint64_t address, uint64_t size, uint32_t access,
                                                       uint32_t line) {
    tell_access(r, address, (uint32_t)size, access, line);
    if (access & HW_WRITE && r->read_only == INPUT) hw_stop(HW_READ_ONLY, READ_ONLY);
    if (access & HW_WRITE && r->read_only) hw_stop(HW_OUT_OF_BOUNDS, "a write through the pointer of another argument");
    hw_stop(HW_MISALIGNED, "misaligned access");
}

static inline int inside(const hw_region *r, uint64_t address, uint64_t size) {
    return address - r->start < r->size && address - r->start + size <= r->size;
}

static __attribute__((noinline)) hw_region *find(uint64_t address, uint64_t size) {
    for (uint32_t i = 0; i < hw.launch->region_count + 3; i++)
        if (inside(region_at(i), address, size)) return region_at(i);
    return NULL;
}

// Whether this side, or its block before a barrier, has read atomically what r wrote atomically: r then comes before
// its next access to the same element, whatever the order of the atomics.
static INLINE int seen(const hw_cell *c, const hw_record *r, hw_record mine) {
    for (int i = 0; r->atomic && i < 2; i++) {
        const hw_record *q = &c->read[i];
        if (q->used && q->atomic && q->time >= r->time && q->block == mine.block && ordered(q, mine)) return 1;
    }
    return 0;
}

static INLINE int of_another(const hw_record *r, hw_record mine, int lds) {
    if (r->time < hw.launch_time) return 0;
    return r->block == mine.block ? r->thread != mine.thread : !lds;
}

// Whether r and mine are a race where one of them writes. Another block's LDS is other memory.
static INLINE int conflicts(const hw_record *r, hw_record mine, int lds) {
    return !settled(r, mine) && (r->mask & mine.mask) && !both_atomic(r, &mine) && !(lds && r->block != mine.block) &&
           !ordered_otherwise(r, mine);
}

static INLINE void track(const hw_region *r, hw_cell *c, hw_record mine, int write, int lds, uint64_t address,
                         uint32_t size, uint32_t access) {
    const hw_record *w = &c->write, *first = &c->read[0];
    if (hw.preemptions)
        hw_contended |= of_another(w, mine, lds) | of_another(first, mine, lds) | of_another(&c->read[1], mine, lds);
    if (conflicts(w, mine, lds) && !seen(c, w, mine)) race(r, w, HW_WRITE, address, size, access, mine.line);
    if (!write) {
        int apart = first->thread != mine.thread && !settled(first, mine) && !(lds && first->block != mine.block);
        c->read[apart && !ordered_otherwise(first, mine)] = mine;
        return;
    }
    for (int i = 0; i < 2; i++) {
        hw_record *q = &c->read[i];
        if (conflicts(q, mine, lds)) race(r, q, HW_READ, address, size, access, mine.line);
        q->mask = 0;
    }
    c->write = mine;
}

static void hw_access(uint64_t address, uint64_t size, uint32_t access, uint32_t line) {
    if (!size) return;
    const hw_fiber *f = hw.thread->fiber;
    if (address - (uint64_t)f->stack < HW_STACK) {
        if (address + size <= (uint64_t)f->stack + HW_STACK) return;
        out_of_bounds(address, size, access, line);
    }
    hw_region *r = hw_recent[line % RECENT];
    int write = access & HW_WRITE;
    if (!inside(r, address, size)) {
        r = find(address, size);
        if (!r) {
            if (!write && address >= (uint64_t)__start_hw_const && address + size <= (uint64_t)__stop_hw_const) return;
            out_of_bounds(address, size, access, line);
        }
        hw_recent[line % RECENT] = r;
    }
    if ((write && r->read_only) || address & ((1ull << (access >> HW_ALIGN)) - 1)) refuse(r, address, size, access, line);
    int lds = r->argument == -2;
    hw.launch->counts[lds ? COUNT_LDS : write ? COUNT_WRITE : COUNT_READ] += size;
    uint32_t now = hw.now;
    if (access & HW_ATOMIC) sync_atomic(address, lds, access);
    if (!r->shadow) return;
    uint64_t g = r->granule, from = address - r->start, end = from + size;
    int shift = __builtin_ctzll(g); // a power of two: the sizes of elements, at most 8
    uint8_t atomic = access & HW_ATOMIC ? 1 + (access >> HW_SCOPE & 3) : 0;
    hw_record mine = {now, (uint32_t)hw.block->linear, (uint16_t)hw.thread->linear, (uint16_t)line, 0, atomic, 1, 0};
    hw_cell *c = (hw_cell *)r->shadow + (from >> shift);
    for (uint64_t at = from & -g; at < end; at += g, c++) {
        uint64_t lo = from > at ? from - at : 0, hi = end < at + g ? end - at : g;
        mine.mask = (uint8_t)((1u << hi) - (1u << lo));
        track(r, c, mine, write, lds, address, (uint32_t)size, access);
    }
}

// Called by the instrumented kernel before each access (see rt.h).
HW_HIDDEN void hw_check(uint64_t address, uint64_t size, uint32_t access, uint32_t line) {
    if (hw.tick_waits) hw.tick_waits = 0, hw_yield();
    hw.busy = 1;
    if (access & HW_ATOMIC && hw.preemptions) hw_preempt();
    hw_contended = 0;
    hw_access(address, size, access, line);
    if (hw_contended && hw.preemptions && !(access & HW_ATOMIC)) hw_preempt();
    hw.busy = 0;
}
