// Faults and time. A signal inside a kernel ends the launch with evidence and returns to hw_run's caller.

enum { FAULT_STACK = 64 << 10, TICK_US = 20000 };
static const int hw_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
enum { SIGNALS = sizeof hw_signals / sizeof *hw_signals };
static struct sigaction hw_before[SIGNALS], hw_timer_before;
static stack_t hw_stack_before;
static char hw_fault_stack[FAULT_STACK] __attribute__((aligned(64)));
static int hw_timer = -1;

static uint64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + t.tv_nsec / 1000;
}

// The buffer closest to an address; its index, or -1.
static int nearest(uint64_t address) {
    int best = -1;
    uint64_t distance = 1ull << 24; // farther than 16 MiB says nothing about which buffer was meant
    for (uint32_t i = 0; i < hw.launch->region_count; i++) {
        const hw_region *r = &hw.launch->regions[i];
        uint64_t d = address < r->start ? r->start - address : address < r->start + r->size ? 0 : address - r->start - r->size;
        if (d < distance) distance = d, best = i;
    }
    return best;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    hw_launch *l = hw.launch;
    if (!l || !hw.thread) _exit(99);
    uint64_t address = (uint64_t)info->si_addr;
    l->address = address, l->region = nearest(address), l->bytes = 0, l->at.access = HW_READ;
#if defined(__x86_64__)
    l->at.access = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2 ? HW_WRITE : HW_READ;
#endif
    const hw_fiber *f = hw.thread->fiber;
    if (f && address < (uint64_t)f->stack && address + 4096 >= (uint64_t)f->stack) {
        l->region = -3;
        hw_stop(HW_LAUNCH_ERROR, "stack overflow: the thread's local arrays need more than 128 KiB");
    }
    if (number == SIGFPE) hw_stop(HW_LAUNCH_ERROR, "integer division by zero or overflow");
    if (number == SIGSEGV && l->region >= 0 && l->regions[l->region].read_only == INPUT &&
        address - l->regions[l->region].start < l->regions[l->region].size) {
        l->at.access = HW_WRITE;
        hw_stop(HW_READ_ONLY, READ_ONLY);
    }
    // a general protection fault has no address; vector instructions raise it at addresses that are not aligned
    if (number == SIGSEGV && info->si_code == SI_KERNEL) {
        l->region = -1;
        hw_stop(HW_OUT_OF_BOUNDS, "misaligned access, or one at an address that cannot exist");
    }
    if (number == SIGILL || number == SIGTRAP) hw_stop(HW_LAUNCH_ERROR, "trap: an assertion failed or unreachable code was reached");
    hw_stop(HW_OUT_OF_BOUNDS, "memory access outside every buffer");
}

// Ends a launch over its limit, and takes a thread that spins on plain memory off the processor.
static void on_tick(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (!hw.launch || !hw.thread) return;
    if (cpu_us() > hw.deadline_us) hw_stop(HW_TIMEOUT, "the launch did not end within its time limit");
    if (hw.busy || ++hw.ticks_here <= 1) return;
    // checked: at the next check, so that nothing comes between the check of an atomic and the atomic itself
    if (hw.launch->checked) hw.tick_waits = 1;
    else hw_yield();
}

static void start_timer(void) {
    struct sigevent event = {0};
    event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGPROF;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    hw.deadline_us = cpu_us() + hw.launch->limit_us;
    if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &hw_timer)) {
        hw_timer = -1;
        return;
    }
    struct itimerspec every = {{0, TICK_US * 1000}, {0, TICK_US * 1000}};
    syscall(SYS_timer_settime, hw_timer, 0, &every, NULL);
}

static void catch_faults(void) {
    stack_t stack = {.ss_sp = hw_fault_stack, .ss_size = FAULT_STACK};
    sigaltstack(&stack, &hw_stack_before);
    struct sigaction action = {0};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < SIGNALS; i++) sigaction(hw_signals[i], &action, &hw_before[i]);
    action.sa_sigaction = on_tick; // on the fiber's own stack: a preempted fiber resumes inside the handler
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    sigaction(SIGPROF, &action, &hw_timer_before);
    start_timer();
}

static void release_faults(void) {
    if (hw_timer >= 0) syscall(SYS_timer_delete, hw_timer);
    hw_timer = -1;
    struct sigaction ignore = {0};
    ignore.sa_handler = SIG_IGN; // drops a tick that is still pending: the default action would end the process
    sigaction(SIGPROF, &ignore, NULL);
    sigaction(SIGPROF, &hw_timer_before, NULL);
    for (int i = 0; i < SIGNALS; i++) sigaction(hw_signals[i], &hw_before[i], NULL);
    sigaltstack(&hw_stack_before, NULL);
}
