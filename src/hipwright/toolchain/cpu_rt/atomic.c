// Atomics: plain read-modify-writes, since one OS thread runs all fibers; counted, and yield points for spinning.

enum { FLOAT_ATOMIC = 1, SPIN = 512 };

// Called before an atomic of `size` bytes; returns the old value. access: HW_READ (a load), HW_WRITE (a store or RMW).
// flags: FLOAT_ATOMIC, and from the second byte on HW_RMW, HW_ORDER and HW_SCOPE as in an access.
HW_HIDDEN uint64_t hw_w_atomic(uint32_t site, const volatile void *p, uint32_t size, uint32_t access, uint32_t flags) {
    hw.busy = 1;
    if (++hw.atomics_here > SPIN) {
        make_ready(hw.thread);
        hw_suspend(hw.thread);
        hw.busy = 1;
    } else if (hw.preemptions) {
        hw_preempt();
    }
    hw_launch *l = hw.launch;
    if (access == HW_WRITE) l->counts[COUNT_ATOMIC]++;
    if (flags & FLOAT_ATOMIC) l->counts[COUNT_FLOAT_ATOMIC]++;
    uint32_t natural = (uint32_t)__builtin_ctz(size) << HW_ALIGN;
    if (l->checked) hw_access((uint64_t)p, size, access | HW_ATOMIC | flags >> 8 | natural, hw_sites[site].line);
    hw.busy = 0;
    switch (size) {
    case 1: return *(const volatile uint8_t *)p;
    case 2: return *(const volatile uint16_t *)p;
    case 4: return *(const volatile uint32_t *)p;
    default: return *(const volatile uint64_t *)p;
    }
}

HW_HIDDEN void hw_w_store(volatile void *p, uint64_t bits, uint32_t size) {
    switch (size) {
    case 1: *(volatile uint8_t *)p = (uint8_t)bits; break;
    case 2: *(volatile uint16_t *)p = (uint16_t)bits; break;
    case 4: *(volatile uint32_t *)p = (uint32_t)bits; break;
    default: *(volatile uint64_t *)p = bits;
    }
}
