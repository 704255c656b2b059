// Happens-before by atomics and fences, for the race check of the checked build.
//
// A clock says up to which time the accesses of other threads are ordered before the holder's next one. Its entries
// are for one thread, for a wave up to its last wave operation, for a block up to its last barrier, or for a block's
// threads up to their last fence before a barrier (a table). An atomic with release order, or one after a fence,
// publishes its thread's clock at its address; an atomic with acquire order that reads there, or a later fence or
// barrier, takes it over. A relaxed atomic alone publishes nothing. Synchronisation between blocks needs device scope
// on both sides. A read-modify-write continues what was published at its address, a plain atomic store replaces it.
// Vector clocks as in Flanagan and Freund, "FastTrack" (PLDI 2009), kept sparse.

typedef struct { uint64_t key; uint32_t time, table; } hw_entry; // key 0: free
typedef struct { hw_entry *slots; uint32_t count, room; } hw_clock; // room: a power of two
typedef struct { uint64_t address; uint32_t block, stamp; hw_clock clock; } hw_object;
typedef struct { uint32_t thread, epoch, wave; } hw_bounds; // of one thread's fence

typedef struct { const hw_object *object; hw_clock clock; } hw_pending; // as it was when read: a store may replace it
typedef struct {
    hw_clock clock;          // taken over since the last barrier
    hw_pending pending[4];   // read by relaxed atomics: taken over by the next fence
    uint32_t pendings;
    hw_bounds fence[2];      // by scope: block, device
    uint32_t shared, shared_at; // the device fence that the wave knows of, and since when
} hw_thread_sync;

typedef struct hw_block_sync {
    hw_clock clock, waves[HW_MAX_BLOCK / 32];
    uint32_t table, table_time, fenced, taken; // taken: some thread or wave has a clock or pending objects
    hw_thread_sync threads[HW_MAX_BLOCK];
} hw_block_sync;

enum { OBJECTS = 1 << 17, DEVICE = 0xffffffff, KEY_WAVE = 1024, KEY_BLOCK = 1100, KEY_TABLE = 1101, KEYS = 2048 };
static const uint64_t ARENA = 256ull << 20, JOINS = 1ull << 24; // bytes of clocks, and entries copied, in one launch
static char *hw_arena;
static uint64_t hw_arena_used, hw_joins;
static hw_object *hw_objects;
static uint32_t hw_object_count;
static uint32_t hw_sync_unknown; // out of room: races that atomics could order are not reported any more

static void sync_forget(void) {
    if (hw_objects) munmap(hw_objects, OBJECTS * sizeof(hw_object));
    hw_objects = NULL;
}

static void sync_launch(void) {
    if (!hw_arena) hw_arena = hw_map(ARENA);
    if (!hw_objects) hw_objects = (hw_object *)hw_map(OBJECTS * sizeof(hw_object));
    hw_arena_used = 16; // offset 0 stands for no table
    hw_joins = hw_object_count = 0;
    hw_sync_unknown = hw.blocks >= DEVICE;
}

// Zeroed memory until the launch ends; NULL when there is none left.
static void *sync_room(uint64_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (hw_arena_used + bytes > ARENA) {
        hw_sync_unknown = 1;
        return NULL;
    }
    char *p = hw_arena + hw_arena_used;
    hw_arena_used += bytes;
    memset(p, 0, bytes);
    return p;
}

static void sync_block(hw_block *b) {
    if (!hw.launch->checked) return;
    if (!b->sync) b->sync = (hw_block_sync *)hw_map(sizeof(hw_block_sync));
    memset(b->sync, 0, offsetof(hw_block_sync, threads) + b->threads_count * sizeof(hw_thread_sync));
}

// ---- clocks

static uint64_t key_of(uint32_t block, uint32_t what) { return (uint64_t)block * KEYS + what + 1; }

static hw_entry *slot_of(const hw_clock *c, uint64_t key) {
    uint64_t i = key * 0x9e3779b97f4a7c15ull >> 40;
    while (c->slots[i & (c->room - 1)].key && c->slots[i & (c->room - 1)].key != key) i++;
    return &c->slots[i & (c->room - 1)];
}

static void put(hw_clock *c, uint64_t key, uint32_t time, uint32_t table) {
    if (!time || hw_sync_unknown) return;
    if (2 * c->count >= c->room) {
        hw_clock more = {NULL, c->count, c->room ? 2 * c->room : 8};
        more.slots = (hw_entry *)sync_room(more.room * sizeof(hw_entry));
        if (!more.slots) return;
        for (uint32_t i = 0; i < c->room; i++)
            if (c->slots[i].key) *slot_of(&more, c->slots[i].key) = c->slots[i];
        *c = more;
    }
    hw_entry *e = slot_of(c, key);
    if (!e->key) c->count++;
    if (time > e->time) *e = (hw_entry){key, time, table};
}

static void join(hw_clock *to, const hw_clock *from) {
    if (!from->count || to == from) return;
    if ((hw_joins += from->room) > JOINS) hw_sync_unknown = 1;
    for (uint32_t i = 0; i < from->room && !hw_sync_unknown; i++)
        if (from->slots[i].key) put(to, from->slots[i].key, from->slots[i].time, from->slots[i].table);
}

static int holds(const hw_clock *c, uint32_t block, uint32_t what, uint32_t time) {
    return slot_of(c, key_of(block, what))->time > time;
}

// Whether what `thread` of `block` did at `time` is ordered before the clock's holder.
static int covers(const hw_clock *c, uint32_t block, uint32_t thread, uint32_t time) {
    if (!c->count) return 0;
    if (holds(c, block, KEY_BLOCK, time) || holds(c, block, thread, time)) return 1;
    if (holds(c, block, KEY_WAVE + thread / hw.launch->wave, time)) return 1;
    const hw_entry *e = slot_of(c, key_of(block, KEY_TABLE));
    return e->key && ((const uint32_t *)(hw_arena + e->table * 16ull))[thread] > time;
}

// Whether the current thread has taken over a clock that covers an access.
static __attribute__((noinline)) int ordered_by_atomics(uint32_t block, uint32_t thread, uint32_t time) {
    if (hw_sync_unknown) return 1;
    const hw_block_sync *s = hw.block->sync;
    return covers(&s->clock, block, thread, time) || covers(&s->waves[hw.thread->wave], block, thread, time) ||
           covers(&s->threads[hw.thread->linear].clock, block, thread, time);
}

// ---- what is published at an address, for one block or for the device

static hw_object *object_at(uint64_t address, uint32_t block, int make) {
    uint64_t h = (address ^ (uint64_t)block * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    for (uint64_t i = h >> 44;; i++) {
        hw_object *o = &hw_objects[i & (OBJECTS - 1)];
        if (o->stamp == hw.launch_time) { // others are left over from earlier launches
            if (o->address == address && o->block == block) return o;
            continue;
        }
        if (!make) return NULL;
        if (++hw_object_count > OBJECTS / 2) {
            hw_sync_unknown = 1;
            return NULL;
        }
        *o = (hw_object){address, block, hw.launch_time, {NULL, 0, 0}};
        return o;
    }
}

static void publish(hw_object *o, hw_bounds bounds, int device) {
    if (!o) return;
    const hw_thread *t = hw.thread;
    hw_block_sync *s = hw.block->sync;
    uint32_t block = (uint32_t)hw.block->linear;
    put(&o->clock, key_of(block, t->linear), bounds.thread, 0);
    put(&o->clock, key_of(block, KEY_BLOCK), bounds.epoch, 0);
    put(&o->clock, key_of(block, KEY_WAVE + t->wave), bounds.wave, 0);
    if (s->table) put(&o->clock, key_of(block, KEY_TABLE), s->table_time, s->table);
    const hw_thread *lanes = hw.block->waves[t->wave].threads;
    for (uint32_t i = 0; device && s->fenced && i < hw.block->waves[t->wave].count; i++) {
        const hw_thread_sync *lane = &s->threads[lanes[i].linear];
        if (lane->shared_at <= t->wave_time) put(&o->clock, key_of(block, lanes[i].linear), lane->shared, 0);
    }
    join(&o->clock, &s->clock);
    join(&o->clock, &s->waves[t->wave]);
    join(&o->clock, &s->threads[t->linear].clock);
}

static void take(const hw_object *o, int now) {
    if (!o || !o->clock.count) return;
    hw_thread_sync *s = &hw.block->sync->threads[hw.thread->linear];
    uint32_t i = 0, most = sizeof s->pending / sizeof *s->pending;
    hw.block->sync->taken = 1;
    while (i < s->pendings && s->pending[i].object != o) i++;
    if (now || i == most) {
        join(&s->clock, &o->clock);
        return;
    }
    s->pending[i] = (hw_pending){o, o->clock};
    if (i == s->pendings) s->pendings++;
}

static void sync_atomic(uint64_t address, int lds, uint32_t access) {
    uint32_t time = ++hw.now, order = access >> HW_ORDER & 7, scope = access >> HW_SCOPE & 3, block = (uint32_t)hw.block->linear;
    if (scope == SCOPE_WAVE || hw_sync_unknown) return;
    const hw_thread_sync *s = &hw.block->sync->threads[hw.thread->linear];
    int writes = access & HW_WRITE, device = scope == SCOPE_DEVICE && !lds;
    int release = writes && order >= __ATOMIC_RELEASE, acquire = order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE;
    if (hw_object_count && (!writes || access & HW_RMW)) {
        take(object_at(address, block, 0), acquire);
        if (device) take(object_at(address, DEVICE, 0), acquire);
    }
    if (!writes) return;
    hw_bounds own = {time, hw.block->epoch_time, hw.thread->wave_time};
    for (int d = 0; d <= device; d++) {
        hw_object *o = hw_object_count ? object_at(address, d ? DEVICE : block, 0) : NULL;
        if (o && !(access & HW_RMW)) o->clock = (hw_clock){NULL, 0, 0};
        hw_bounds bounds = release ? own : s->fence[d];
        if (bounds.thread || hw.block->sync->fenced || hw.block->sync->table)
            publish(o ? o : object_at(address, d ? DEVICE : block, 1), bounds, d);
    }
}

// A fence of the current thread.
HW_HIDDEN void hw_fence(uint32_t order, uint32_t scope) {
    if (!hw.launch->checked || scope == SCOPE_WAVE || order == __ATOMIC_RELAXED) return;
    hw.busy = 1;
    hw_thread_sync *s = &hw.block->sync->threads[hw.thread->linear];
    hw_bounds now = {++hw.now, hw.block->epoch_time, hw.thread->wave_time};
    if (order >= __ATOMIC_RELEASE) {
        s->fence[0] = now;
        if (scope == SCOPE_DEVICE) s->fence[1] = now, hw.block->sync->fenced = 1;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; order != __ATOMIC_RELEASE && i < s->pendings; i++) {
        if (scope == SCOPE_BLOCK && s->pending[i].object->block == DEVICE) s->pending[kept++] = s->pending[i];
        else join(&s->clock, &s->pending[i].clock);
    }
    if (order != __ATOMIC_RELEASE) s->pendings = kept;
    hw.busy = 0;
}

// ---- barriers and wave operations hand over what their threads know

static void hand_over(hw_clock *to, hw_thread_sync *s) {
    join(to, &s->clock);
    for (uint32_t i = 0; i < s->pendings; i++) join(to, &s->pending[i].clock);
    s->clock = (hw_clock){NULL, 0, 0}, s->pendings = 0;
}

static void sync_barrier(hw_block *b) {
    if (!hw.launch->checked || !(b->sync->taken || b->sync->fenced)) return;
    hw_block_sync *s = b->sync;
    uint32_t *table = s->fenced ? (uint32_t *)sync_room(b->threads_count * sizeof(uint32_t)) : NULL;
    const uint32_t *before = s->table ? (const uint32_t *)(hw_arena + s->table * 16ull) : NULL;
    for (uint32_t i = 0; i < b->threads_count; i++) {
        int waits = b->threads[i].state == ST_BARRIER;
        if (table) table[i] = waits ? s->threads[i].fence[1].thread : before ? before[i] : 0;
        if (waits) hand_over(&s->clock, &s->threads[i]);
    }
    for (uint32_t i = 0; i < b->waves_count; i++) join(&s->clock, &s->waves[i]), s->waves[i] = (hw_clock){NULL, 0, 0};
    if (table) s->table = (uint32_t)(((char *)table - hw_arena) / 16), s->table_time = ++hw.now;
    s->taken = s->fenced = 0;
}

static void sync_wave(hw_wave *w, uint64_t mask) {
    if (!hw.launch->checked || !(hw.block->sync->taken || hw.block->sync->fenced)) return;
    hw_block_sync *s = hw.block->sync;
    for (uint64_t left = mask; left; left &= left - 1) {
        const hw_thread *t = &w->threads[__builtin_ctzll(left)];
        hw_thread_sync *lane = &s->threads[t->linear];
        hand_over(&s->waves[t->wave], lane);
        lane->shared = lane->fence[1].thread, lane->shared_at = t->wave_time;
    }
}
