// The scheduler of fibers: lanes of a wave, waves of a block, blocks of the grid.
//
// hw_pick is called on the stack of the thread that just blocked or ended, so a switch between two lanes is one
// hw_switch. The fiber of a thread that never blocks serves the next new thread without a switch.

hw_dim hw_thread_index, hw_block_index, hw_block_dim, hw_grid_dim;
uint32_t hw_lane;
uint64_t hw_poison;

enum { LDS_RED_ZONE = 256, LDS_MAX = 160 << 10, PREEMPTIONS = 1024 };
char hw_dyn_lds[LDS_MAX + LDS_RED_ZONE] __attribute__((aligned(256)));
extern char __start_hw_lds[] __attribute__((weak, visibility("hidden")));
extern char __stop_hw_lds[] __attribute__((weak, visibility("hidden")));

static char *hw_map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) hw_stop(HW_LAUNCH_ERROR, "the cpu target ran out of memory");
    return p;
}

static uint64_t hw_random(void) { // splitmix64
    uint64_t z = (hw.random += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void arrange(uint8_t *order, uint32_t n) {
    uint32_t how = hw.launch->order;
    for (uint32_t i = 0; i < n; i++) order[i] = how == HW_REVERSE ? n - 1 - i : i;
    if (how != HW_SHUFFLE) return;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = hw_random() % i;
        uint8_t x = order[i - 1];
        order[i - 1] = order[j], order[j] = x;
    }
}

// ---- fibers

static hw_fiber hw_fiber_list[HW_MAX_FIBERS];

enum { BATCH = 64, PAGE = 4096 }; // fibers that are mapped together, each with a page before it that faults

static void more_fibers(void) {
    if (hw.fibers + BATCH > HW_MAX_FIBERS) hw_stop(HW_LAUNCH_ERROR, "too many threads wait on another block");
    char *memory = hw_map((size_t)BATCH * (HW_STACK + PAGE));
    for (int i = 0; i < BATCH; i++) {
        if (!mprotect(memory + (size_t)i * (HW_STACK + PAGE), PAGE, PROT_NONE)) continue;
        munmap(memory, (size_t)BATCH * (HW_STACK + PAGE));
        hw_stop(HW_LAUNCH_ERROR, "the cpu target ran out of memory mappings");
    }
    for (int i = 0; i < BATCH; i++) {
        hw_fiber *f = &hw_fiber_list[hw.fibers];
        f->stack = memory + (size_t)i * (HW_STACK + PAGE) + PAGE;
        f->number = hw.fibers++;
        f->next = hw.free_fibers, hw.free_fibers = f;
    }
}

// Unmap the stacks: each is two mappings, of which a process may have some 65,000. Does nothing during a launch.
HW_EXPORT void hw_release(void) {
    if (hw.launch) return;
    for (uint32_t i = 0; i < hw.fibers; i += BATCH)
        munmap((char *)hw_fiber_list[i].stack - PAGE, (size_t)BATCH * (HW_STACK + PAGE));
    hw.fibers = 0, hw.free_fibers = NULL;
}

static void all_fibers_free(void) {
    hw.free_fibers = NULL;
    for (uint32_t i = hw.fibers; i-- > 0;) hw_fiber_list[i].next = hw.free_fibers, hw.free_fibers = &hw_fiber_list[i];
}

static void activate(hw_thread *t) {
    hw.thread = t;
    t->state = ST_RUN;
    t->home->ready &= ~(1ull << t->lane);
    hw.ticks_here = hw.atomics_here = 0;
    hw_thread_index = (hw_dim){t->index[0], t->index[1], t->index[2]};
    hw_lane = t->lane;
}

static void hw_fiber_main(void) {
    for (;;) {
        hw_fiber *mine = hw.thread->fiber;
        hw.busy = 0;
        hw.launch->entry(hw.launch->args);
        hw.busy = 1;
        hw.thread->state = ST_DONE;
        hw.block->alive--;
        hw_thread *next = hw_pick();
        void *gone;
        if (!next) hw_switch(&gone, hw.main_sp);
        int fresh = next->state == ST_NEW;
        activate(next);
        if (fresh) {
            next->fiber = mine;
            continue;
        }
        mine->next = hw.free_fibers, hw.free_fibers = mine;
        hw_switch(&gone, next->sp);
    }
}

static void *fresh_stack(char *top, void (*entry)(void)) {
    void **sp = (void **)top - (HW_FRAME + HW_ABOVE);
    for (int i = 0; i < HW_FRAME + HW_ABOVE; i++) sp[i] = 0;
    sp[HW_RETURN] = (void *)entry;
    return sp;
}

static void run(hw_thread *t, void **save) {
    int fresh = t->state == ST_NEW;
    activate(t);
    if (!fresh) {
        hw_switch(save, t->sp);
        return;
    }
    if (!hw.free_fibers) more_fibers();
    hw_fiber *f = t->fiber = hw.free_fibers;
    hw.free_fibers = f->next;
    // stacks start at different cache sets: equal ones would evict each other at every switch
    hw_switch(save, fresh_stack(f->stack + HW_STACK - 64 - (f->number % 61) * 64, hw_fiber_main));
}

static inline void make_ready(hw_thread *t) {
    t->state = ST_READY;
    t->home->ready |= 1ull << t->lane;
}

// The next lane of a wave that can run, in this round of its order; NULL at its end.
static inline hw_thread *next_lane(hw_wave *w) {
    while (w->cursor < w->count) {
        uint32_t lane = w->order[w->cursor++];
        if (w->ready >> lane & 1) return &w->threads[lane];
    }
    return NULL;
}

// The thread t is blocked: run others until it is scheduled again.
static inline void hw_suspend(hw_thread *t) {
    hw_thread *next = next_lane(t->home);
    if (!next) next = hw_pick();
    if (next == t) {
        activate(t);
        return;
    }
    run(next, &t->sp);
}

// ---- blocks

static size_t static_lds(void) { return __start_hw_lds ? (size_t)(__stop_hw_lds - __start_hw_lds) : 0; }

static void fill(char *to, size_t bytes, uint64_t poison) {
    for (size_t i = 0; i < bytes; i++) to[i] = (char)(poison >> (8 * (i & 7)));
}

// The first block finds poison, about half of the others zeros: a kernel that tells either from what a block of a GPU
// finds goes wrong in some block of one run. Only the red zone is poison in every block.
static uint64_t lds_contents(uint64_t position) {
    return position * 0x9E3779B97F4A7C15ull >> 63 ? 0 : hw_poison;
}

// With lds_kept a block finds what the last one left, as on a GPU; only the red zone is filled.
static void poison_lds(uint64_t position) {
    const hw_launch *l = hw.launch;
    if (!l->lds_kept) {
        uint64_t contents = lds_contents(position);
        if (l->lds_static) fill(__start_hw_lds, static_lds(), contents);
        if (!l->lds_dynamic && !l->lds_static) return;
        fill(hw_dyn_lds, l->lds_dynamic, contents);
    }
    for (uint32_t i = l->lds_dynamic; i < l->lds_dynamic + LDS_RED_ZONE; i++)
        hw_dyn_lds[i] = (char)(hw_poison >> (8 * (i & 7)));
}

static void check_lds(void) {
    if (!hw.launch->lds_dynamic && !hw.launch->lds_static) return;
    char *zone = hw_dyn_lds + hw.launch->lds_dynamic;
    for (uint32_t i = 0; i < LDS_RED_ZONE; i++)
        if (zone[i] != (char)(hw_poison >> (8 * ((hw.launch->lds_dynamic + i) & 7)))) {
            hw.launch->address = (uint64_t)(zone + i), hw.launch->region = -2, hw.launch->at.access = HW_WRITE;
            hw_stop(HW_OUT_OF_BOUNDS, "a write past the end of the dynamic LDS");
        }
}

static void enter_block(hw_block *b) {
    hw.block = b;
    hw_block_index = (hw_dim){b->index[0], b->index[1], b->index[2]};
}

static uint64_t block_number(uint64_t k) {
    if (hw.launch->order == HW_FORWARD) return k;
    if (hw.launch->order == HW_REVERSE) return hw.blocks - 1 - k;
    return (k * hw.stride + hw.shift) % hw.blocks;
}

static void start_block(hw_block *b) {
    const hw_launch *l = hw.launch;
    uint64_t position = hw.next_block++, n = b->linear = block_number(position);
    b->index[0] = n % l->grid[0], b->index[1] = n / l->grid[0] % l->grid[1], b->index[2] = n / l->grid[0] / l->grid[1];
    b->alive = b->threads_count, b->position = b->at_barrier = b->again = 0;
    b->barrier = NULL, b->votes = b->voters = 0;
    b->epoch_time = ++hw.now;
    arrange(b->wave_order, b->waves_count);
    for (uint32_t i = 0; i < b->threads_count; i++) {
        hw_thread *t = &b->threads[i];
        t->state = ST_NEW, t->wave_time = 0;
        for (uint32_t j = 0; j < l->loops; j++) t->iterations[j] = 0;
    }
    for (uint32_t i = 0; i < b->waves_count; i++) {
        hw_wave *w = &b->waves[i];
        w->cursor = w->mixed = w->barriers = 0, w->waiting = 0;
        w->ready = ~0ull >> (64 - w->count);
        if (l->order == HW_SHUFFLE) arrange(w->order, w->count);
    }
    sync_block(b);
    enter_block(b);
    poison_lds(position);
}

static hw_block *new_block(void) {
    const hw_launch *l = hw.launch;
    hw_block *b = hw.resident[hw.residents];
    if (!b) b = hw.resident[hw.residents] = (hw_block *)hw_map(sizeof(hw_block));
    hw.residents++;
    b->threads_count = l->block[0] * l->block[1] * l->block[2];
    b->waves_count = (b->threads_count + l->wave - 1) / l->wave;
    for (uint32_t i = 0; i < b->threads_count; i++) {
        hw_thread *t = &b->threads[i];
        t->index[0] = i % l->block[0], t->index[1] = i / l->block[0] % l->block[1];
        t->index[2] = i / l->block[0] / l->block[1];
        t->linear = i, t->wave = i / l->wave, t->lane = i % l->wave, t->home = &b->waves[t->wave];
    }
    for (uint32_t i = 0; i < b->waves_count; i++) {
        hw_wave *w = &b->waves[i];
        uint32_t left = b->threads_count - i * l->wave;
        w->threads = b->threads + i * l->wave, w->count = left < l->wave ? left : l->wave;
        arrange(w->order, w->count);
    }
    return b;
}

static void swap_lds(char *saved, int out) {
    size_t fixed = static_lds(), total = hw.launch->lds_dynamic + LDS_RED_ZONE;
    if (fixed) memcpy(out ? saved : __start_hw_lds, out ? __start_hw_lds : saved, fixed);
    memcpy(out ? saved + fixed : hw_dyn_lds, out ? hw_dyn_lds : saved + fixed, total);
}

// A block that only spins waits for another block: run that one, as a GPU does with its resident blocks.
static void leave_spinning_block(void) {
    enum { RESIDENT = sizeof hw.resident / sizeof *hw.resident };
    uint32_t room = HW_MAX_FIBERS / (hw.block->threads_count + 64);
    int more = hw.next_block < hw.blocks && hw.residents < RESIDENT && hw.residents < room;
    if (!more && hw.residents == 1) return;
    if (!hw.block->saved_lds) hw.block->saved_lds = hw_map(static_lds() + LDS_MAX + LDS_RED_ZONE);
    swap_lds(hw.block->saved_lds, 1);
    if (more) {
        start_block(new_block());
        return;
    }
    hw.turn = (hw.turn + 1) % hw.residents;
    if (hw.resident[hw.turn] == hw.block) hw.turn = (hw.turn + 1) % hw.residents;
    enter_block(hw.resident[hw.turn]);
    swap_lds(hw.block->saved_lds, 0);
}

// Returns 0 when the grid is done.
static int finish_block(void) {
    check_lds();
    if (hw.next_block < hw.blocks) {
        start_block(hw.block);
        return 1;
    }
    for (uint32_t i = 0; i < hw.residents; i++)
        if (hw.resident[i] == hw.block) hw.resident[i] = hw.resident[--hw.residents], hw.resident[hw.residents] = hw.block;
    if (!hw.residents) return 0;
    enter_block(hw.resident[0]);
    swap_lds(hw.block->saved_lds, 0);
    return 1;
}

// ---- scheduling

static void release_barrier(hw_block *b) {
    sync_barrier(b);
    for (uint32_t i = 0; i < b->threads_count; i++) {
        hw_thread *t = &b->threads[i];
        if (t->state != ST_BARRIER) continue;
        make_ready(t);
        t->home->result[t->lane] = t->op == 0 ? (uint64_t)b->votes : t->op == 1 ? b->votes == b->voters : b->votes != 0;
    }
    for (uint32_t i = 0; i < b->waves_count; i++) b->waves[i].barriers = 0;
    b->at_barrier = 0, b->barrier = NULL, b->votes = b->voters = 0;
    b->epoch_time = ++hw.now;
    hw.launch->counts[COUNT_BARRIER]++;
    if (hw.launch->order == HW_SHUFFLE) arrange(b->wave_order, b->waves_count);
}

static hw_thread *next_of_wave(hw_block *b, hw_wave *w) {
    for (;;) {
        hw_thread *t = next_lane(w);
        if (t) return t;
        w->cursor = 0;
        if (!hw_resolve(w)) return NULL;
        // a shuffled run also changes waves between two wave operations
        if (hw.launch->order == HW_SHUFFLE && b->waves_count > 1 && (hw_random() & 1)) {
            b->again = 1;
            return NULL;
        }
    }
}

static hw_thread *hw_pick(void) {
    for (;;) {
        hw_block *b = hw.block;
        while (b->position < b->waves_count) {
            hw_thread *t = next_of_wave(b, &b->waves[b->wave_order[b->position]]);
            if (t) return t;
            b->position++;
        }
        b->position = 0;
        if (!b->alive) {
            if (!finish_block()) return NULL;
        } else if (b->at_barrier == b->alive) {
            release_barrier(b);
        } else if (b->again) {
            b->again = 0;
        } else {
            leave_spinning_block();
        }
    }
}

// ---- calls of kernels that block

HW_HIDDEN uint32_t hw_w_barrier(uint32_t site, int vote, uint32_t kind) {
    hw.busy = 1;
    hw_thread *t = hw.thread;
    hw_block *b = hw.block;
    t->site = &hw_sites[site];
    if (!b->barrier) b->barrier = t->site;
    if (b->barrier != t->site) {
        hw.launch->at.line = t->site->line, hw.launch->other.line = b->barrier->line;
        hw_stop(HW_LAUNCH_ERROR, "barrier divergence: threads of one block wait at different __syncthreads");
    }
    t->state = ST_BARRIER, t->op = kind;
    t->home->barriers++, b->at_barrier++, b->voters++, b->votes += vote != 0;
    hw_suspend(t);
    hw.busy = 0;
    return (uint32_t)t->home->result[t->lane];
}

// The thread waits for memory to change: run others first.
HW_HIDDEN void hw_yield(void) {
    hw.busy = 1;
    make_ready(hw.thread);
    hw_suspend(hw.thread);
    hw.busy = 0;
}

// In shuffled order a thread may lose the processor at an access to what other threads use too, long enough for all
// others to get as far as they can: an update made of a read and a write of its own is then lost. Bounded per launch.
static void hw_preempt(void) {
    if (!hw.preemptions || hw_random() % (hw.preemptions > PREEMPTIONS / 2 ? 2 : 8)) return;
    hw.preemptions--;
    if (hw_random() & 1) hw.block->again = 1; // the other waves of the block first, else other blocks too
    make_ready(hw.thread);
    hw_suspend(hw.thread);
    hw.busy = 1;
}

// ---- a launch

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

static void begin(hw_launch *l) {
    hw.launch = l, hw.thread = NULL, hw.block = NULL;
    hw.random = l->seed * 0x9e3779b97f4a7c15ull + 1;
    hw.next_block = 0, hw.blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    // a step without common factor with the count visits every block once; small, so that products fit
    hw.stride = hw_random() % (hw.blocks < 1 << 20 ? hw.blocks : 1 << 20) + 1, hw.shift = hw_random() % hw.blocks;
    while (gcd(hw.stride, hw.blocks) != 1) hw.stride++;
    hw.residents = hw.turn = 0;
    hw.preemptions = l->order == HW_SHUFFLE ? PREEMPTIONS : 0;
    hw_poison = l->poison;
    hw_block_dim = (hw_dim){l->block[0], l->block[1], l->block[2]};
    hw_grid_dim = (hw_dim){l->grid[0], l->grid[1], l->grid[2]};
    all_fibers_free();
    if (hw.now > 3000000000u) hw.now = 0, hw_forget();
    hw.launch_time = ++hw.now;
}

// The first steps of a launch, on a stack of their own so that hw_stop can leave them too.
static void boot(void) {
    hw_check_begin();
    start_block(new_block());
    void *gone;
    run(hw_pick(), &gone);
}

// Run one launch; returns its status. Everything else about the outcome is in *l. Not reentrant.
HW_EXPORT uint32_t hw_run(hw_launch *l) {
    l->status = HW_OK, l->region = -1, l->message[0] = 0;
    begin(l);
    catch_faults();
    hw.busy = 1;
    static char stack[64 << 10] __attribute__((aligned(64)));
    hw_switch(&hw.main_sp, fresh_stack(stack + sizeof stack, boot));
    hw.busy = 1;
    release_faults();
    hw.launch = NULL;
    if (hw.fibers > HW_KEPT_FIBERS) hw_release();
    return l->status;
}

static void tell(hw_party *p, const hw_block *b, const hw_thread *t) {
    for (int i = 0; i < 3; i++) p->block[i] = b->index[i], p->thread[i] = t ? t->index[i] : 0;
}

// End the launch, from any stack.
static void hw_stop(uint32_t status, const char *message) {
    hw_launch *l = hw.launch;
    l->status = status;
    size_t n = 0;
    while (message[n] && n + 1 < sizeof l->message) l->message[n] = message[n], n++;
    l->message[n] = 0;
    if (hw.block) tell(&l->at, hw.block, hw.thread);
    void *gone;
    hw_switch(&gone, hw.main_sp);
    __builtin_unreachable();
}

// A thread passes the header of a loop: count its iteration and reset those of the loops inside.
HW_HIDDEN void hw_loop(uint32_t loop, uint32_t last) {
    uint32_t *n = hw.thread->iterations;
    n[loop]++;
    for (uint32_t i = loop + 1; i <= last; i++) n[i] = 0;
}
