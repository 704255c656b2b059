// The matrix instructions that the cpu target emulates, in the order of hw_shapes in cpu_rt/mfma.c. Operands may be any
// types of the right size, as user code names its vectors in many ways.
#pragma once

#define HW_MFMA(NUMBER, NAME, A_BYTES, B_BYTES, C_BYTES)                                                               \
    template <class HwA, class HwB, class HwC>                                                                         \
    HW_FN HwC __builtin_amdgcn_mfma_##NAME(HwA a, HwB b, HwC c, int cbsz, int abid, int blgp) {                        \
        static_assert(sizeof(HwA) == A_BYTES && sizeof(HwB) == B_BYTES && sizeof(HwC) == C_BYTES, "operands of " #NAME); \
        if (cbsz | abid | blgp) hw_w_unsupported(0);                                                                   \
        HwC d;                                                                                                         \
        hw_w_mfma(0, NUMBER, &a, &b, &c, &d);                                                                          \
        return d;                                                                                                      \
    }
HW_MFMA(0, f32_32x32x1f32, 4, 4, 128)
HW_MFMA(1, f32_16x16x1f32, 4, 4, 64)
HW_MFMA(2, f32_4x4x1f32, 4, 4, 16)
HW_MFMA(3, f32_32x32x2f32, 4, 4, 64)
HW_MFMA(4, f32_16x16x4f32, 4, 4, 16)
HW_MFMA(5, f32_32x32x4f16, 8, 8, 128)
HW_MFMA(6, f32_16x16x4f16, 8, 8, 64)
HW_MFMA(7, f32_4x4x4f16, 8, 8, 16)
HW_MFMA(8, f32_32x32x8f16, 8, 8, 64)
HW_MFMA(9, f32_16x16x16f16, 8, 8, 16)
HW_MFMA(10, f32_32x32x4bf16_1k, 8, 8, 128)
HW_MFMA(11, f32_16x16x4bf16_1k, 8, 8, 64)
HW_MFMA(12, f32_4x4x4bf16_1k, 8, 8, 16)
HW_MFMA(13, f32_32x32x8bf16_1k, 8, 8, 64)
HW_MFMA(14, f32_16x16x16bf16_1k, 8, 8, 16)
HW_MFMA(15, f64_16x16x4f64, 8, 8, 32)
HW_MFMA(16, f64_4x4x4f64, 8, 8, 8)
HW_MFMA(17, i32_32x32x16_i8, 8, 8, 64)
HW_MFMA(18, i32_16x16x32_i8, 8, 8, 16)
HW_MFMA(19, f32_32x32x16_f16, 16, 16, 64)
HW_MFMA(20, f32_16x16x32_f16, 16, 16, 16)
HW_MFMA(21, f32_32x32x16_bf16, 16, 16, 64)
HW_MFMA(22, f32_16x16x32_bf16, 16, 16, 16)
HW_MFMA(23, i32_32x32x8i8, 4, 4, 64)
HW_MFMA(24, i32_16x16x16i8, 4, 4, 16)
HW_MFMA(25, f32_32x32x16_fp8_fp8, 8, 8, 64)
HW_MFMA(26, f32_16x16x32_fp8_fp8, 8, 8, 16)
HW_MFMA(27, f32_32x32x16_bf8_bf8, 8, 8, 64)
HW_MFMA(28, f32_16x16x32_bf8_bf8, 8, 8, 16)
HW_MFMA(29, f32_32x32x16_fp8_bf8, 8, 8, 64)
HW_MFMA(30, f32_16x16x32_fp8_bf8, 8, 8, 16)
HW_MFMA(31, f32_32x32x16_bf8_fp8, 8, 8, 64)
HW_MFMA(32, f32_16x16x32_bf8_fp8, 8, 8, 16)
HW_MFMA(33, i32_32x32x32_i8, 16, 16, 64)
HW_MFMA(34, i32_16x16x64_i8, 16, 16, 16)
#undef HW_MFMA

// Scaled products of gfx950: `cbsz` and `blgp` are the types of A and B (fp8, bf8, fp6, bf6, fp4, as OCP has them), a
// scale is E8M0, byte `opsel` of its word. Two words of 0 are no scales, as where clang sees constants.
#define HW_MFMA_SCALE(NUMBER, NAME, C_BYTES)                                                                           \
    template <class HwA, class HwB, class HwC>                                                                         \
    HW_FN HwC __builtin_amdgcn_mfma_scale_##NAME(HwA a, HwB b, HwC c, int cbsz, int blgp, int opsel_a, int scale_a,    \
                                                 int opsel_b, int scale_b) {                                           \
        static_assert(sizeof(HwA) == 32 && sizeof(HwB) == 32 && sizeof(HwC) == C_BYTES, "operands of " #NAME);         \
        if ((unsigned)cbsz > 4 || (unsigned)blgp > 4 || (cbsz < 2) != (blgp < 2)) hw_w_unsupported(0);                 \
        HwC d;                                                                                                         \
        const bool plain = (scale_a | scale_b) == 0;                                                                   \
        const unsigned byte_a = plain ? 127 : (unsigned)scale_a >> 8 * (opsel_a & 3) & 255;                            \
        const unsigned byte_b = plain ? 127 : (unsigned)scale_b >> 8 * (opsel_b & 3) & 255;                            \
        hw_w_mfma(0, NUMBER | (unsigned)cbsz << 8 | (unsigned)blgp << 12 | byte_a << 16 | byte_b << 24, &a, &b, &c, &d); \
        return d;                                                                                                      \
    }
HW_MFMA_SCALE(35, f32_16x16x128_f8f6f4, 16)
HW_MFMA_SCALE(36, f32_32x32x64_f8f6f4, 64)
#undef HW_MFMA_SCALE
