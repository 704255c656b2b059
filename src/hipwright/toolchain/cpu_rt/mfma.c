// The matrix instructions of CDNA as wave operations. Layouts: docs/cpu-target.md, checked against AMD's published ones
// by tests/cpu/test_mfma.py. With KL = K * M * blocks / 64 consecutive k of one lane:
//   A[b][i][k] is element k % KL of lane i + M * (b + blocks * (k / KL)); B[b][k][j] the same with j for i;
//   C and D: groups of four rows go to one lane, the groups of a block first over lanes, then over registers.

typedef enum { F16, BF16, F32, F64, I8, FP8, BF8 } hw_type;
typedef struct { uint8_t m, k, blocks, a, b, d; } hw_shape; // n = m for every instruction here
typedef struct { uint32_t shape; const void *a, *b, *c; void *d; } hw_operands;

// In the order of hw/cpu_mfma.h.
static const hw_shape hw_shapes[] = {
    {32, 1, 2, F32, F32, F32}, {16, 1, 4, F32, F32, F32}, {4, 1, 16, F32, F32, F32}, {32, 2, 1, F32, F32, F32},
    {16, 4, 1, F32, F32, F32}, {32, 4, 2, F16, F16, F32}, {16, 4, 4, F16, F16, F32}, {4, 4, 16, F16, F16, F32},
    {32, 8, 1, F16, F16, F32}, {16, 16, 1, F16, F16, F32}, {32, 4, 2, BF16, BF16, F32}, {16, 4, 4, BF16, BF16, F32},
    {4, 4, 16, BF16, BF16, F32}, {32, 8, 1, BF16, BF16, F32}, {16, 16, 1, BF16, BF16, F32}, {16, 4, 1, F64, F64, F64},
    {4, 4, 4, F64, F64, F64}, {32, 16, 1, I8, I8, I8}, {16, 32, 1, I8, I8, I8}, {32, 16, 1, F16, F16, F32},
    {16, 32, 1, F16, F16, F32}, {32, 16, 1, BF16, BF16, F32}, {16, 32, 1, BF16, BF16, F32}, {32, 8, 1, I8, I8, I8},
    {16, 16, 1, I8, I8, I8}, {32, 16, 1, FP8, FP8, F32}, {16, 32, 1, FP8, FP8, F32}, {32, 16, 1, BF8, BF8, F32},
    {16, 32, 1, BF8, BF8, F32}, {32, 16, 1, FP8, BF8, F32}, {16, 32, 1, FP8, BF8, F32}, {32, 16, 1, BF8, FP8, F32},
    {16, 32, 1, BF8, FP8, F32},
};

// gfx942's fp8 (e4m3) and bf8 (e5m2) are the FNUZ kinds: one zero, 0x80 is NaN, no infinities.
static double fp8(uint8_t x, int mantissa_bits, int bias) {
    if (x == 0x80) return __builtin_nan("");
    int e = (x & 0x7f) >> mantissa_bits, m = x & ((1 << mantissa_bits) - 1);
    double v = e ? 1.0 + m / (double)(1 << mantissa_bits) : m / (double)(1 << mantissa_bits);
    for (int i = e ? e - bias : 1 - bias; i; i += i < 0 ? 1 : -1) v *= i < 0 ? 0.5 : 2.0;
    return x & 0x80 ? -v : v;
}

static double element(const void *lane, hw_type type, uint32_t i) {
    switch (type) {
    case F16: return ((const _Float16 *)lane)[i];
    case BF16: {
        uint32_t u = (uint32_t)((const uint16_t *)lane)[i] << 16;
        float f;
        memcpy(&f, &u, 4);
        return f;
    }
    case F32: return ((const float *)lane)[i];
    case F64: return ((const double *)lane)[i];
    case I8: return ((const int8_t *)lane)[i];
    case FP8: return fp8(((const uint8_t *)lane)[i], 3, 8);
    default: return fp8(((const uint8_t *)lane)[i], 2, 16);
    }
}

static void place(const hw_shape *s, uint32_t block, uint32_t i, uint32_t j, uint32_t *lane, uint32_t *item) {
    uint32_t n = s->m;
    if (s->d == F64 && n == 4) {
        *lane = 16 * i + 4 * block + j, *item = 0;
        return;
    }
    uint32_t rows = s->d == F64 ? 1 : 4, groups = n / rows, fit = 64 / n; // fit: groups of n lanes in a wave
    uint32_t group = i / rows + groups * block; // counted over all blocks
    if (groups < fit) {                         // several blocks side by side in one register set
        *lane = j + n * (group % fit), *item = i % rows + rows * (group / fit);
        return;
    }
    uint32_t inside = i / rows;
    *lane = j + n * (inside % fit), *item = i % rows + rows * (inside / fit + groups / fit * block);
}

static const hw_operands *operands(hw_wave *w, uint32_t lane) { return (const hw_operands *)w->threads[lane].data; }

static void load(hw_wave *w, const hw_shape *s, int which, uint32_t block, double *out) {
    uint32_t run = s->k * s->m * s->blocks / 64;
    for (uint32_t i = 0; i < s->m; i++)
        for (uint32_t k = 0; k < s->k; k++) {
            const hw_operands *o = operands(w, i + s->m * (block + s->blocks * (k / run)));
            out[i * s->k + k] = element(which ? o->b : o->a, which ? s->b : s->a, k % run);
        }
}

static void multiply(hw_wave *w, const hw_shape *s, uint32_t block) {
    static double a[32 * 32], b[32 * 32];
    load(w, s, 0, block, a), load(w, s, 1, block, b);
    for (uint32_t i = 0; i < s->m; i++)
        for (uint32_t j = 0; j < s->m; j++) {
            uint32_t lane, item;
            place(s, block, i, j, &lane, &item);
            const hw_operands *o = operands(w, lane);
            const double *x = a + i * s->k, *y = b + j * s->k;
            if (s->d == I8) {
                int32_t sum = ((const int32_t *)o->c)[item];
                for (uint32_t k = 0; k < s->k; k++) sum = (int32_t)((uint32_t)sum + (uint32_t)(int32_t)(x[k] * y[k]));
                ((int32_t *)o->d)[item] = sum;
            } else if (s->d == F64) {
                double sum = ((const double *)o->c)[item];
                for (uint32_t k = 0; k < s->k; k++) sum = __builtin_fma(x[k], y[k], sum);
                ((double *)o->d)[item] = sum;
            } else { // products are exact in double; each addition rounds to float as the instruction's do
                float sum = ((const float *)o->c)[item];
                for (uint32_t k = 0; k < s->k; k++) sum = (float)(sum + x[k] * y[k]);
                ((float *)o->d)[item] = sum;
            }
        }
}

static void hw_mfma_run(hw_wave *w) {
    const hw_shape *s = &hw_shapes[operands(w, 0)->shape];
    for (uint32_t block = 0; block < s->blocks; block++) multiply(w, s, block);
}

HW_HIDDEN void hw_w_mfma(uint32_t site, uint32_t shape, const void *a, const void *b, const void *c, void *d) {
    hw_operands o = {shape, a, b, c, d};
    hw.thread->data = &o;
    wait(site, OP_MFMA, 0, 0, 0);
}

HW_HIDDEN void hw_w_unsupported(uint32_t site) {
    hw.launch->at.line = hw_sites[site].line;
    hw_stop(HW_LAUNCH_ERROR, "an MFMA modifier (cbsz, abid, blgp) that the cpu target does not emulate");
}
