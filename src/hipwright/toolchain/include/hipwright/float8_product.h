// Products of 8-bit floats by matrix units: which codes MFMA takes as they are, what becomes of others, and `mma.sync`.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/float8.h>
#include <hipwright/matrix_cores.h>
#include <hipwright/tensor_cores.h>

// What MFMA makes of the codes of a form. gfx942 multiplies FNUZ forms, gfx950 OCP's. Read as FNUZ, a code of e4m3fn
// is half its value, but for -0 and NaN, whose codes are changed on the way to LDS. Forms that are neither (e5m2 on
// gfx942: FNUZ has no infinities), and all on GPUs without such an instruction, become bfloat16, exactly.
enum Float8Codes { FLOAT8_TAKEN, FLOAT8_HALVED, FLOAT8_WIDENED };

// K: the k of one instruction, 32 or 128. The cpu target multiplies as gfx942 does where K is 32, else as gfx950.
template <int FORMAT, int K>
__device__ __forceinline__ constexpr int float8_codes() {
#if defined(__gfx950__)
    return Float8Form<FORMAT>::FNUZ ? FLOAT8_WIDENED : FLOAT8_TAKEN;
#elif defined(__gfx942__)
    return Float8Form<FORMAT>::FNUZ ? FLOAT8_TAKEN : FORMAT == FLOAT8_E4M3FN ? FLOAT8_HALVED : FLOAT8_WIDENED;
#elif defined(__AMDGCN__)
    return FLOAT8_WIDENED;
#else
    if (K == 128) return Float8Form<FORMAT>::FNUZ ? FLOAT8_WIDENED : FLOAT8_TAKEN;
    return Float8Form<FORMAT>::FNUZ ? FLOAT8_TAKEN : FORMAT == FLOAT8_E4M3FN ? FLOAT8_HALVED : FLOAT8_WIDENED;
#endif
}

// Whether a product of two forms widens both.
template <int A, int B, int K>
__device__ __forceinline__ constexpr bool float8_widens() {
    return float8_codes<A, K>() == FLOAT8_WIDENED || float8_codes<B, K>() == FLOAT8_WIDENED;
}

// What a sum of products is multiplied with: 2 for each operand whose codes were read as halves.
template <int A, int B, int K>
__device__ __forceinline__ constexpr float float8_scale() {
#if GEMM_MFMA
    if (float8_widens<A, B, K>()) return 1.0f;
    constexpr bool A_HALVED = float8_codes<A, K>() == FLOAT8_HALVED, B_HALVED = float8_codes<B, K>() == FLOAT8_HALVED;
    return (A_HALVED ? 2.0f : 1.0f) * (B_HALVED ? 2.0f : 1.0f);
#else
    return 1.0f;
#endif
}

#if GEMM_MFMA
// Four codes of e4m3fn as the FNUZ codes of half their values: -0 becomes 0, and NaN is 0x80.
__device__ __forceinline__ unsigned halved_float8(unsigned codes) {
    const unsigned size = codes & 0x7f7f7f7f;
    const unsigned some = (size + 0x7f7f7f7f) & 0x80808080, nan = (size + 0x01010101) & 0x80808080;
    return (size & ~(nan - (nan >> 7))) | (codes & some) | nan;
}

// The codes of an operand of form FORMAT as the instruction wants them; OTHER is the form of the other operand.
template <int OTHER, int K, int FORMAT, int N>
__device__ __forceinline__ void to_matrix_codes(Float8Number<FORMAT> (&codes)[N]) {
    if constexpr (!float8_widens<FORMAT, OTHER, K>() && float8_codes<FORMAT, K>() == FLOAT8_HALVED) {
        unsigned words[N / 4];
        __builtin_memcpy(words, codes, N);
#pragma unroll
        for (int i = 0; i < N / 4; ++i) words[i] = halved_float8(words[i]);
        __builtin_memcpy(codes, words, N);
    }
}

// A lane's part of an operand of a 16 x 16 product, K deep: the codes of row (column) lane % 16, K / 4 of them.
template <int K>
struct Float8Fragment {
    unsigned words[K / 16];
};

// Eight codes as bfloat16; exact.
template <int FORMAT>
__device__ __forceinline__ BfloatFragments<32> widened_float8(const unsigned* words) {
    BfloatFragments<32> out;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float value = float8_to_float<FORMAT>((unsigned char)(words[i / 4] >> i % 4 * 8));
        unsigned bits;
        __builtin_memcpy(&bits, &value, 4);
        out[i] = (short)(bits >> 16);
    }
    return out;
}

// c + the product of 32 of k, of codes that `to_matrix_codes` has seen; gfx90a has no such instruction.
template <int A, int B, int K>
__device__ __forceinline__ Accumulator float8_step(const unsigned* a, const unsigned* b, Accumulator c) {
    if constexpr (float8_widens<A, B, K>()) return matrix_product(widened_float8<A>(a), widened_float8<B>(b), c);
#if !defined(__gfx90a__)
    long x, y;
    __builtin_memcpy(&x, a, 8);
    __builtin_memcpy(&y, b, 8);
    if constexpr (Float8Form<A>::E4M3 && Float8Form<B>::E4M3)
        return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, c, 0, 0, 0);
    else if constexpr (Float8Form<A>::E4M3)
        return __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(x, y, c, 0, 0, 0);
    else if constexpr (Float8Form<B>::E4M3)
        return __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8(x, y, c, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(x, y, c, 0, 0, 0);
#endif
}

// c + the product of K of k: one instruction of gfx950's for 128, else one for each 32. In any order of k, as both
// operands have the same.
template <int A, int B, int K>
__device__ __forceinline__ Accumulator float8_product(const Float8Fragment<K>& a, const Float8Fragment<K>& b,
                                                      Accumulator c) {
#if !defined(__AMDGCN__) || (defined(__gfx950__) && __has_builtin(__builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4))
    if constexpr (K == 128 && !float8_widens<A, B, K>()) {
        using Words = int __attribute__((ext_vector_type(8)));
        Words x, y;
        __builtin_memcpy(&x, a.words, 32);
        __builtin_memcpy(&y, b.words, 32);
        constexpr int KIND_A = !Float8Form<A>::E4M3, KIND_B = !Float8Form<B>::E4M3;
        return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, y, c, KIND_A, KIND_B, 0, 0, 0, 0);
    }
#endif
#pragma unroll
    for (int i = 0; i < K / 16; i += 2) c = float8_step<A, B, K>(a.words + i, b.words + i, c);
    return c;
}
#endif

#if GEMM_MMA
#ifdef __CUDA_ARCH__
// Two of four codes, the lower or the upper ones, as half numbers; exact.
template <int FORMAT>
__device__ __forceinline__ unsigned halves_of_float8(unsigned codes, int upper) {
    __half pair[2];
    pair[0] = __half(float8_to_float<FORMAT>((unsigned char)(codes >> 16 * upper)));
    pair[1] = __half(float8_to_float<FORMAT>((unsigned char)(codes >> (16 * upper + 8))));
    unsigned out;
    __builtin_memcpy(&out, pair, 4);
    return out;
}
#endif

// c += A B of one warp, 16 x 8 x 32, as mma_m16n8k16_half (tensor_cores.h) with two codes of OCP forms in place of each
// half number: one instruction from compute capability 8.9 (PTX ISA, "mma"), before it two of half numbers.
template <int A, int B>
__device__ __forceinline__ void mma_m16n8k32_float8(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                                    int lane) {
#if __CUDA_ARCH__ >= 890
#define FLOAT8_MMA(TYPES)                                                                                              \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." TYPES                                                        \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (Float8Form<A>::E4M3 && Float8Form<B>::E4M3)
        FLOAT8_MMA("e4m3.e4m3");
    else if constexpr (Float8Form<A>::E4M3)
        FLOAT8_MMA("e4m3.e5m2");
    else if constexpr (Float8Form<B>::E4M3)
        FLOAT8_MMA("e5m2.e4m3");
    else
        FLOAT8_MMA("e5m2.e5m2");
#undef FLOAT8_MMA
#elif defined(__CUDA_ARCH__)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
        unsigned x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = halves_of_float8<A>(a[i], upper);
        const unsigned left = halves_of_float8<B>(b0, upper), right = halves_of_float8<B>(b1, upper);
        mma_m16n8k16_half(c[0], c[1], c[2], c[3], x, left, right, lane);
    }
#else
    for (int k = 0; k < 8; ++k) {
        const unsigned b = k / 4 ? b1 : b0;
        const unsigned upper_row = __shfl((int)a[k / 4 * 2], lane / 4 * 4 + k % 4, 32);
        const unsigned lower_row = __shfl((int)a[k / 4 * 2 + 1], lane / 4 * 4 + k % 4, 32);
        const unsigned left_column = __shfl((int)b, lane % 4 * 8 + k % 4, 32);
        const unsigned right_column = __shfl((int)b, lane % 4 * 8 + 4 + k % 4, 32);
        for (int byte = 0; byte < 32; byte += 8) {
            const float x = float8_to_float<A>((unsigned char)(upper_row >> byte));
            const float y = float8_to_float<A>((unsigned char)(lower_row >> byte));
            const float left = float8_to_float<B>((unsigned char)(left_column >> byte));
            const float right = float8_to_float<B>((unsigned char)(right_column >> byte));
            c[0] += x * left, c[1] += x * right, c[2] += y * left, c[3] += y * right;
        }
    }
#endif
}
#endif
