// The matrix instructions of CDNA as wave operations. Layouts: docs/cpu-target.md, checked against AMD's published ones
// by tests/cpu/test_mfma.py. With KL = K * M * blocks / 64 consecutive k of one lane:
//   A[b][i][k] is element k % KL of lane i + M * (b + blocks * (k / KL)); B[b][k][j] the same with j for i;
//   C and D: groups of four rows go to one lane, the groups of a block first over lanes, then over registers.

typedef enum { F16, BF16, F32, F64, I8, FP8, BF8, OCP_FP8, OCP_BF8, FP6, BF6, FP4 } hw_type;
typedef struct { uint8_t m, k, blocks, a, b, d; } hw_shape; // n = m for every instruction here
// shape: a number of hw_shapes; of scaled ones also the types of A and B, from bit 8 and 12, and two bytes of scales
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
    {16, 32, 1, BF8, FP8, F32}, {32, 32, 1, I8, I8, I8}, {16, 64, 1, I8, I8, I8}, {16, 128, 1, OCP_FP8, OCP_FP8, F32},
    {32, 64, 1, OCP_FP8, OCP_FP8, F32},
};
enum { FIRST_SCALED = 35 };

// The value of a number with so many bits of exponent and mantissa, below its sign.
static double small_float(uint32_t x, int exponent_bits, int mantissa_bits, int bias) {
    int e = x >> mantissa_bits & ((1 << exponent_bits) - 1), m = x & ((1 << mantissa_bits) - 1);
    double v = e ? 1.0 + m / (double)(1 << mantissa_bits) : m / (double)(1 << mantissa_bits);
    for (int i = e ? e - bias : 1 - bias; i; i += i < 0 ? 1 : -1) v *= i < 0 ? 0.5 : 2.0;
    return x >> (exponent_bits + mantissa_bits) & 1 ? -v : v;
}
// gfx942's fp8 (e4m3) and bf8 (e5m2) are the FNUZ kinds: one zero, 0x80 is NaN, no infinities.
static double fnuz(uint8_t x, int mantissa_bits) {
    return x == 0x80 ? __builtin_nan("") : small_float(x, 7 - mantissa_bits, mantissa_bits, mantissa_bits == 3 ? 8 : 16);
}
// gfx950's are OCP's: e4m3 has no infinities, 0x7f and 0xff are NaN; e5m2 is as IEEE has it.
static double ocp(uint8_t x, int mantissa_bits) {
    uint8_t size = x & 0x7f;
    if (mantissa_bits == 3 ? size == 0x7f : size > 0x7c) return __builtin_nan("");
    if (mantissa_bits == 2 && size == 0x7c) return x & 0x80 ? -__builtin_inf() : __builtin_inf();
    return small_float(x, 7 - mantissa_bits, mantissa_bits, mantissa_bits == 3 ? 7 : 15);
}
// Element i of those packed at 4 or 6 bits each.
static uint32_t packed(const void *lane, uint32_t bits, uint32_t i) {
    const uint8_t *byte = (const uint8_t *)lane + bits * i / 8;
    uint32_t shift = bits * i % 8, both = byte[0] | (shift + bits > 8 ? (uint32_t)byte[1] << 8 : 0);
    return both >> shift & ((1u << bits) - 1);
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
    case FP8: return fnuz(((const uint8_t *)lane)[i], 3);
    case BF8: return fnuz(((const uint8_t *)lane)[i], 2);
    case OCP_FP8: return ocp(((const uint8_t *)lane)[i], 3);
    case OCP_BF8: return ocp(((const uint8_t *)lane)[i], 2);
    case FP6: return small_float(packed(lane, 6, i), 2, 3, 1);
    case BF6: return small_float(packed(lane, 6, i), 3, 2, 3);
    default: return small_float(packed(lane, 4, i), 2, 1, 1);
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

// The factor of 32 elements of k: 2^(byte - 127), 255 is NaN.
static double scale(uint32_t byte) {
    double v = byte == 255 ? __builtin_nan("") : 1.0;
    for (int i = (int)byte - 127; i; i += i < 0 ? 1 : -1) v *= i < 0 ? 0.5 : 2.0;
    return v;
}

// Scaled products: lane i + M * b holds the scale of k from 32 b on; 8-bit types lie in two runs of 16, half of k apart.
static void load_scaled(hw_wave *w, const hw_shape *s, int which, double *out) {
    for (uint32_t i = 0; i < s->m; i++)
        for (uint32_t k = 0; k < s->k; k++) {
            uint32_t kinds = operands(w, i)->shape, half = s->k / 2u;
            hw_type type = OCP_FP8 + (which ? kinds >> 12 & 15 : kinds >> 8 & 15);
            uint32_t run = type <= OCP_BF8 ? k % half / 16 : k / 32, n = type <= OCP_BF8 ? k / half * 16 + k % 16 : k % 32;
            const hw_operands *o = operands(w, i + s->m * run), *by = operands(w, i + s->m * (k / 32));
            out[i * s->k + k] = element(which ? o->b : o->a, type, n) * scale(which ? by->shape >> 24 : by->shape >> 16 & 255);
        }
}

static void load(hw_wave *w, const hw_shape *s, int which, uint32_t block, double *out) {
    if ((operands(w, 0)->shape & 255) >= FIRST_SCALED) {
        load_scaled(w, s, which, out);
        return;
    }
    uint32_t run = s->k * s->m * s->blocks / 64;
    for (uint32_t i = 0; i < s->m; i++)
        for (uint32_t k = 0; k < s->k; k++) {
            const hw_operands *o = operands(w, i + s->m * (block + s->blocks * (k / run)));
            out[i * s->k + k] = element(which ? o->b : o->a, which ? s->b : s->a, k % run);
        }
}

static void multiply(hw_wave *w, const hw_shape *s, uint32_t block) {
    static double a[32 * 64], b[32 * 64];
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
    const hw_shape *s = &hw_shapes[operands(w, 0)->shape & 255];
    for (uint32_t block = 0; block < s->blocks; block++) multiply(w, s, block);
}

HW_HIDDEN void hw_w_mfma(uint32_t site, uint32_t shape, const void *a, const void *b, const void *c, void *d) {
    hw_operands o = {shape, a, b, c, d};
    hw.thread->data = &o;
    wait(site, OP_MFMA, 0, 0, 0);
}

HW_HIDDEN void hw_w_unsupported(uint32_t site) {
    hw.launch->at.line = hw_sites[site].line;
    hw_stop(HW_LAUNCH_ERROR, "an MFMA modifier (cbsz, abid, blgp), or a mix of types, that the cpu target does not emulate");
}
