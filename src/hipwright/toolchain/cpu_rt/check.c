// The checked build: every access is compared with the launch's memory, and ordered against earlier accesses.
//
// Time is one counter that steps at each barrier, wave operation and atomic. An access is ordered after a recorded one
// when the same thread made it, when a barrier of its block, or a wave operation both lanes took part in, lies between,
// or when the recorded side did an atomic afterwards on an address that this side touched atomically after that.

typedef struct { uint32_t time, block; uint16_t thread, line; uint8_t mask, atomic, used, pad; } hw_record;
typedef struct { hw_record write, read[2]; } hw_cell;
typedef struct { uint64_t address; uint32_t block, thread, last, next; } hw_touch;

enum { TOUCHES = 1 << 20, ANY_THREAD = 0xffff, GLOBAL = -4, LDS_GRANULE = 4 };
static const uint64_t SHADOW_BYTES = 2ull << 30, REGION_SHADOWED = 64ull << 20, BLOCKS = 1ull << 24;
static char *hw_shadow;
static uint64_t hw_shadow_room;
static hw_touch *hw_touches;
static uint32_t *hw_touch_head, hw_touch_count, hw_touch_full;
static uint64_t hw_head_room;
static hw_region hw_own[3]; // static LDS, dynamic LDS, module variables
static hw_region *hw_recent;
extern char __start_hw_data[] __attribute__((weak, visibility("hidden")));
extern char __stop_hw_data[] __attribute__((weak, visibility("hidden")));
extern char __start_hw_const[] __attribute__((weak, visibility("hidden")));
extern char __stop_hw_const[] __attribute__((weak, visibility("hidden")));

// Offsets into the shadow, plus one, until its address is known. Huge regions have no race detection.
static uint64_t give_shadow(hw_region *r, uint64_t used) {
    r->shadow = 0;
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
    if (hw_touches) munmap(hw_touches, TOUCHES * sizeof(hw_touch));
    hw_shadow = NULL, hw_touches = NULL;
}

static void hw_check_begin(void) {
    hw_launch *l = hw.launch;
    if (!l->checked) return;
    if (!hw_touches) hw_touches = (hw_touch *)hw_map(TOUCHES * sizeof(hw_touch));
    // entries of earlier launches in the shadow and the touches are recognised by their time
    hw_touch_count = hw_touch_full = 0;
    if (hw_touch_head) munmap(hw_touch_head, hw_head_room);
    hw_touch_full = hw.blocks > BLOCKS;
    hw_head_room = (hw_touch_full ? 1 : hw.blocks) * sizeof(uint32_t);
    hw_touch_head = (uint32_t *)hw_map(hw_head_room);
    hw_own[0] = (hw_region){(uint64_t)__start_hw_lds, static_lds(), LDS_GRANULE, -2, 0};
    hw_own[1] = (hw_region){(uint64_t)hw_dyn_lds, l->lds_dynamic, LDS_GRANULE, -2, 0};
    hw_own[2] = (hw_region){(uint64_t)__start_hw_data, __stop_hw_data - __start_hw_data, LDS_GRANULE, GLOBAL, 0};
    hw_recent = &hw_own[0];
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

// ---- atomics as synchronisation

static hw_touch *touch_of(uint64_t address, uint32_t block, uint32_t thread, int make) {
    uint64_t h = (address ^ ((uint64_t)block << 32 | thread) * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    for (uint64_t i = h >> 44;; i++) {
        hw_touch *t = &hw_touches[i & (TOUCHES - 1)];
        int used = t->last > hw.launch_time; // older ones are left over from earlier launches
        if (used && t->address == address && t->block == block && t->thread == thread) return t;
        if (used) continue;
        if (!make) return NULL;
        if (hw_touch_count >= TOUCHES / 2) {
            hw_touch_full = 1; // from here on ordering by atomics is unknown: races that it could order are not reported
            return NULL;
        }
        hw_touch_count++;
        *t = (hw_touch){address, block, thread, hw.now, 0};
        if (thread == ANY_THREAD) t->next = hw_touch_head[block], hw_touch_head[block] = (uint32_t)(t - hw_touches) + 1;
        return t;
    }
}

static void touch(uint64_t address) {
    if (hw_touch_full) return;
    uint32_t time = ++hw.now, block = (uint32_t)hw.block->linear;
    hw_touch *t = touch_of(address, block, ANY_THREAD, 1), *u = touch_of(address, block, hw.thread->linear, 1);
    if (t) t->last = time;
    if (u) u->last = time;
}

// Whether the side that made r did an atomic after it, on an address that this side touched after r too.
static int ordered_by_atomics(const hw_record *r, int same_block) {
    if (hw_touch_full) return 1;
    uint32_t mine = (uint32_t)hw.block->linear, him = same_block ? r->thread : ANY_THREAD;
    uint32_t me = same_block ? hw.thread->linear : ANY_THREAD;
    for (uint32_t i = hw_touch_head[r->block]; i; i = hw_touches[i - 1].next) {
        hw_touch *t = &hw_touches[i - 1];
        if (same_block) t = touch_of(t->address, r->block, him, 0);
        if (!t || t->last <= r->time) continue;
        const hw_touch *u = touch_of(t->address, mine, me, 0);
        if (u && u->last > r->time) return 1;
    }
    return 0;
}

static int ordered(const hw_record *r) {
    const hw_block *b = hw.block;
    const hw_thread *t = hw.thread;
    if (!r->used || r->time < hw.launch_time) return 1;
    if (r->block != (uint32_t)b->linear) return ordered_by_atomics(r, 0);
    if (r->thread == t->linear || r->time < b->epoch_time) return 1;
    if (r->thread / hw.launch->wave == t->wave && r->time < t->wave_time) return 1;
    return ordered_by_atomics(r, 1);
}

// ---- bounds and races

static __attribute__((noreturn, noinline)) void out_of_bounds(uint64_t address, uint32_t size, uint32_t access, uint32_t line) {
    hw_launch *l = hw.launch;
    l->address = address, l->bytes = size, l->region = nearest(address);
    l->at.access = access, l->at.line = line;
    for (int i = 0; i < 2; i++)
        if (address + 4096 >= hw_own[i].start && address < hw_own[i].start + hw_own[i].size + 4096) l->region = -2;
    hw_stop(HW_OUT_OF_BOUNDS, "memory access outside every buffer");
}

static __attribute__((noreturn, noinline)) void race(const hw_region *r, const hw_record *before, int wrote, uint64_t address,
                                                     uint32_t size, uint32_t access, uint32_t line) {
    hw_launch *l = hw.launch;
    l->address = address, l->bytes = size;
    l->region = r >= l->regions && r < l->regions + l->region_count ? (int32_t)(r - l->regions) : r->argument;
    l->at.access = access, l->at.line = line;
    l->other.access = wrote | (before->atomic ? HW_ATOMIC : 0), l->other.line = before->line;
    uint64_t n = before->block;
    l->other.block[0] = n % l->grid[0], l->other.block[1] = n / l->grid[0] % l->grid[1];
    l->other.block[2] = n / l->grid[0] / l->grid[1];
    const hw_thread *t = &hw.block->threads[before->thread];
    for (int i = 0; i < 3; i++) l->other.thread[i] = t->index[i];
    hw_stop(HW_RACE, "data race: two threads use the same element in no fixed order, and one writes");
}

static hw_region *find(uint64_t address, uint64_t size) {
    hw_launch *l = hw.launch;
    hw_region *r = hw_recent;
    if (address - r->start < r->size && address - r->start + size <= r->size) return r;
    for (uint32_t i = 0; i < l->region_count + 3; i++) {
        r = region_at(i);
        if (address - r->start < r->size && address - r->start + size <= r->size) return hw_recent = r;
    }
    return NULL;
}

static void track(const hw_region *r, hw_cell *c, hw_record mine, int write, uint64_t address, uint32_t size, uint32_t access) {
    hw_record *w = &c->write;
    int lds = r->argument == -2; // another block's LDS is other memory
    if ((w->mask & mine.mask) && !(w->atomic && mine.atomic) && !(lds && w->block != mine.block) && !ordered(w))
        race(r, w, HW_WRITE, address, size, access, mine.line);
    if (!write) {
        hw_record *slot = &c->read[c->read[0].thread != mine.thread && !ordered(&c->read[0])];
        *slot = mine;
        return;
    }
    for (int i = 0; i < 2; i++) {
        hw_record *q = &c->read[i];
        if ((q->mask & mine.mask) && !(q->atomic && mine.atomic) && !(lds && q->block != mine.block) && !ordered(q))
            race(r, q, HW_READ, address, size, access, mine.line);
        q->mask = 0;
    }
    *w = mine;
}

static void hw_access(uint64_t address, uint64_t size, uint32_t access, uint32_t line) {
    if (!size) return;
    const hw_fiber *f = hw.thread->fiber;
    if (address - (uint64_t)f->stack < HW_STACK) {
        if (address + size <= (uint64_t)f->stack + HW_STACK) return;
        out_of_bounds(address, size, access, line);
    }
    hw_region *r = find(address, size);
    int write = access & HW_WRITE;
    if (!r) {
        if (!write && address >= (uint64_t)__start_hw_const && address + size <= (uint64_t)__stop_hw_const) return;
        out_of_bounds(address, size, access, line);
    }
    hw.launch->counts[r->argument == -2 ? COUNT_LDS : write ? COUNT_WRITE : COUNT_READ] += size;
    if (access & HW_ATOMIC) touch(address);
    if (!r->shadow) return;
    uint32_t g = r->granule;
    uint64_t from = address - r->start, end = from + size;
    hw_record mine = {hw.now, (uint32_t)hw.block->linear, (uint16_t)hw.thread->linear, (uint16_t)line, 0, (access & HW_ATOMIC) != 0, 1, 0};
    for (uint64_t cell = from / g; cell * g < end; cell++) {
        uint64_t lo = from > cell * g ? from - cell * g : 0, hi = end < cell * g + g ? end - cell * g : g;
        mine.mask = (uint8_t)((1u << hi) - (1u << lo));
        track(r, (hw_cell *)r->shadow + cell, mine, write, address, (uint32_t)size, access);
    }
}

// Called by the instrumented kernel before each access. access: HW_READ or HW_WRITE, plus HW_ATOMIC when volatile.
HW_HIDDEN void hw_check(uint64_t address, uint64_t size, uint32_t access, uint32_t line) {
    hw.busy = 1;
    hw_access(address, size, access, line);
    hw.busy = 0;
}
