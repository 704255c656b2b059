// Conversions the compiler calls where the processor has no instruction for them (bfloat16 on most x86).

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static __bf16 narrow(float f) {
    uint32_t u = bits_of(f);
    uint16_t h = f != f ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    __bf16 b;
    memcpy(&b, &h, 2);
    return b;
}

HW_HIDDEN __bf16 __truncsfbf2(float f) { return narrow(f); }

HW_HIDDEN __bf16 __truncdfbf2(double d) {
    // round to odd first, so that the second rounding is the only one that counts
    float f = (float)d;
    if (f == f && (double)f != d) {
        uint32_t u = bits_of(f);
        double back = f < 0 ? -(double)f : f, want = d < 0 ? -d : d;
        if (back > want) u--;
        u |= 1;
        memcpy(&f, &u, 4);
    }
    return narrow(f);
}
