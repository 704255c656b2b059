// Wave operations: lanes deposit operands and wait; the earliest group of waiting lanes executes together.

// True when t's position comes first in the structured order of the program: loops count as one place of the code
// around them, and inside a loop the earlier iteration comes first. This is where hardware reconverges.
static int compare(const hw_thread *t, const hw_thread *u) {
    const hw_site *a = t->site, *b = u->site;
    for (uint32_t i = 0;; i++) {
        uint32_t p = i < a->depth ? a->nest[i].pos : a->pos, q = i < b->depth ? b->nest[i].pos : b->pos;
        if (p != q) return p < q ? -1 : 1;
        if (i >= a->depth || i >= b->depth) return 0;
        uint32_t m = t->iterations[a->nest[i].loop], n = u->iterations[b->nest[i].loop];
        if (m != n) return m < n ? -1 : 1;
    }
}

static int hw_is_before(const hw_thread *t, const hw_thread *u) { return compare(t, u) < 0; }

static int same_place(const hw_thread *t, const hw_thread *u) {
    if (t->site != u->site) return 0;
    for (uint32_t i = 0; i < t->site->depth; i++) {
        uint32_t loop = t->site->nest[i].loop;
        if (t->iterations[loop] != u->iterations[loop]) return 0;
    }
    return 1;
}

// The earliest waiting lane; *mask the lanes that wait with it. Every lane waits, at a barrier too, or has ended.
static hw_thread *earliest(hw_wave *w, uint64_t *mask) {
    hw_thread *first = NULL, *barrier = NULL;
    for (uint32_t i = 0; i < w->count; i++) {
        hw_thread *t = &w->threads[i];
        if (t->state == ST_BARRIER && (!barrier || hw_is_before(t, barrier))) barrier = t;
        if (t->state == ST_WAVE && (!first || hw_is_before(t, first))) first = t;
    }
    if (barrier && hw_is_before(barrier, first)) {
        hw.launch->at.line = barrier->site->line, hw.launch->other.line = first->site->line;
        hw.thread = barrier;
        hw_stop(HW_LAUNCH_ERROR, "barrier divergence: part of a wave waits at __syncthreads, the rest went on");
    }
    for (uint64_t left = w->waiting; left; left &= left - 1)
        if (!same_place(first, &w->threads[__builtin_ctzll(left)])) *mask &= ~(left & -left);
    return first;
}

static void permute(hw_wave *w, uint64_t mask) {
    for (uint64_t left = mask; left; left &= left - 1) {
        uint32_t lane = __builtin_ctzll(left), from = w->b[lane];
        w->result[lane] = from < 64 && (mask >> from & 1) ? w->a[from] : w->other[lane];
    }
}

static void push(hw_wave *w, uint64_t mask) {
    for (uint64_t left = mask; left; left &= left - 1) w->result[__builtin_ctzll(left)] = 0;
    for (uint64_t left = mask; left; left &= left - 1) {
        uint32_t lane = __builtin_ctzll(left), to = w->b[lane];
        if (to < 64 && (mask >> to & 1)) w->result[to] = w->a[lane];
    }
}

static void give_all(hw_wave *w, uint64_t mask, uint64_t value) {
    for (uint64_t left = mask; left; left &= left - 1) w->result[__builtin_ctzll(left)] = value;
}

static uint64_t ballot(const hw_wave *w, uint64_t mask) {
    uint64_t votes = 0;
    for (uint64_t left = mask; left; left &= left - 1) votes |= (w->a[__builtin_ctzll(left)] != 0) * (left & -left);
    return votes;
}

// Executes the operation of the earliest lanes that wait. 0 when a lane can still run or none waits.
static int hw_resolve(hw_wave *w) {
    if (w->ready || !w->waiting) return 0;
    uint64_t mask = w->waiting;
    hw_thread *first = w->mixed || w->barriers ? earliest(w, &mask) : w->first;
    uint32_t time = ++hw.now;
    switch (first->op) {
    case OP_PERM: permute(w, mask); break;
    case OP_PUSH: push(w, mask); break;
    case OP_BALLOT: give_all(w, mask, ballot(w, mask)); break;
    case OP_FIRST: give_all(w, mask, w->a[__builtin_ctzll(mask)]); break;
    case OP_MFMA:
        hw.thread = first;
        if (w->count != 64 || mask != ~0ull)
            hw_stop(HW_LAUNCH_ERROR, "an MFMA needs all 64 lanes of its wave, and some are elsewhere or have ended");
        hw_mfma_run(w);
        break;
    default: break;
    }
    if (hw.launch->checked)
        for (uint64_t left = mask; left; left &= left - 1) w->threads[__builtin_ctzll(left)].wave_time = time;
    w->ready |= mask, w->waiting &= ~mask;
    sync_wave(w, mask);
    hw.launch->counts[COUNT_WAVE]++;
    return 1;
}

static inline uint64_t wait(uint32_t site, int op, uint64_t a, uint32_t b, uint64_t other) {
    hw.busy = 1;
    hw_thread *t = hw.thread;
    hw_wave *w = t->home;
    uint32_t lane = t->lane;
    t->site = &hw_sites[site], t->op = op, t->state = ST_WAVE;
    w->a[lane] = a, w->b[lane] = b, w->other[lane] = other;
    if (!w->waiting) w->first = t, w->mixed = 0;
    else if (!w->mixed) w->mixed = !same_place(w->first, t);
    w->waiting |= 1ull << lane;
    hw_suspend(t);
    hw.busy = 0;
    return w->result[lane];
}

HW_HIDDEN uint64_t hw_w_perm(uint32_t site, uint64_t v, uint32_t source, uint64_t other) {
    return wait(site, OP_PERM, v, source, other);
}
HW_HIDDEN uint64_t hw_w_push(uint32_t site, uint64_t v, uint32_t target) { return wait(site, OP_PUSH, v, target, 0); }
HW_HIDDEN uint64_t hw_w_ballot(uint32_t site, int vote) { return wait(site, OP_BALLOT, vote, 0, 0); }
HW_HIDDEN uint64_t hw_w_first(uint32_t site, uint64_t v) { return wait(site, OP_FIRST, v, 0, 0); }
HW_HIDDEN void hw_w_sync(uint32_t site) { wait(site, OP_SYNC, 0, 0, 0); }
