// The 8-bit floats of OCP and their FNUZ forms: their values, and the nearest of a float.
#pragma once
#include <hip/hip_runtime.h>

// OCP 8-bit Floating Point Specification 1.0: e4m3fn (largest 448, no infinities, 0x7f is NaN) and e5m2 (largest 57344).
// FNUZ forms: one more in the exponent's bias (largest 240 and 57344), one zero, 0x80 is the only NaN, no infinities.
enum Float8 { FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT8_E4M3FNUZ, FLOAT8_E5M2FNUZ };

template <int FORMAT>
struct Float8Form {
    static constexpr bool FNUZ = FORMAT == FLOAT8_E4M3FNUZ || FORMAT == FLOAT8_E5M2FNUZ;
    static constexpr bool E4M3 = FORMAT == FLOAT8_E4M3FN || FORMAT == FLOAT8_E4M3FNUZ;
    static constexpr int MANTISSA = E4M3 ? 3 : 2, BIAS = (E4M3 ? 7 : 15) + FNUZ;
    static constexpr unsigned LARGEST = FNUZ ? 0x7f : E4M3 ? 0x7e : 0x7b, NOT_A_NUMBER = FNUZ ? 0x80 : 0x7f;
    static constexpr float MAXIMUM = E4M3 ? (FNUZ ? 240.0f : 448.0f) : 57344.0f;
    static constexpr bool INFINITE = !FNUZ && !E4M3;  // the code behind the largest is infinity
// Where the GPU converts this form: gfx942 has FNUZ, gfx950 has OCP's.
#if defined(__gfx942__)
    static constexpr bool NATIVE = FNUZ;
#elif defined(__gfx950__)
    static constexpr bool NATIVE = !FNUZ;
#else
    static constexpr bool NATIVE = false;
#endif
};

// Where NVIDIA's instructions convert OCP's forms, two at a time (PTX ISA, "cvt"; compute capability 8.9).
#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 890
#define FLOAT8_PAIRS 1
#endif
#endif

// The value of a code; exact.
template <int FORMAT>
__device__ __forceinline__ float float8_to_float(unsigned char code) {
    using Form = Float8Form<FORMAT>;
#if defined(__gfx942__) || defined(__gfx950__)
    if constexpr (Form::NATIVE && Form::E4M3) return __builtin_amdgcn_cvt_f32_fp8(code, 0);
    if constexpr (Form::NATIVE && !Form::E4M3) return __builtin_amdgcn_cvt_f32_bf8(code, 0);
#endif
#ifdef FLOAT8_PAIRS
    if constexpr (!Form::FNUZ) {
        unsigned halves;
        if constexpr (Form::E4M3)
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)code));
        else
            halves = (unsigned)code << 8;  // the upper half of a float16
        float value;
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(halves));
        return value;
    }
#endif
    const unsigned size = code & 0x7f, sign = (unsigned)(code >> 7) << 31;
    unsigned bits = (size << (23 - Form::MANTISSA)) + ((unsigned)(127 - Form::BIAS) << 23);
    if (size >> Form::MANTISSA == 0) {  // subnormal: whole multiples of the smallest
        const float value = (float)size * (1.0f / (1 << (Form::BIAS - 1 + Form::MANTISSA)));
        __builtin_memcpy(&bits, &value, 4);
    }
    if (Form::FNUZ ? code == Form::NOT_A_NUMBER : size > Form::LARGEST + Form::INFINITE) bits = 0x7fc00000;
    if (Form::INFINITE && size == Form::LARGEST + 1) bits = 0x7f800000;
    bits |= sign;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

#ifdef FLOAT8_PAIRS
// The codes of two floats, the first in the lower byte, saturated; NaN is 0x7f.
template <int FORMAT>
__device__ __forceinline__ unsigned saturated_float8_pair(float low, float high) {
    unsigned short pair;
    if constexpr (Float8Form<FORMAT>::E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

// The first float that rounds beyond the largest: half a step of its last place above it.
template <int FORMAT>
__device__ __forceinline__ constexpr unsigned first_beyond_float8() {
    using Form = Float8Form<FORMAT>;
    return ((Form::LARGEST << (23 - Form::MANTISSA)) + ((unsigned)(127 - Form::BIAS) << 23)) +
           (1u << (22 - Form::MANTISSA)) + (Form::LARGEST % 2 == 0);
}

// The code of the nearest value, to even where two are as near; NaN has no sign. What rounds to more than the largest, and infinities,
// become the largest where SATURATE, else infinity, or NaN in forms without infinities (OCP, section 5.2.1).
template <int FORMAT, bool SATURATE>
__device__ __forceinline__ unsigned char float_to_float8(float x) {
    using Form = Float8Form<FORMAT>;
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    const unsigned size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
#ifdef FLOAT8_PAIRS
    if constexpr (!Form::FNUZ) {
        const unsigned saturated = saturated_float8_pair<FORMAT>(x, 0.0f);
        if (SATURATE || size < first_beyond_float8<FORMAT>() || size > 0x7f800000) return (unsigned char)saturated;
        return Form::INFINITE ? (unsigned char)(sign | (Form::LARGEST + 1)) : Form::NOT_A_NUMBER;
    }
#endif
    if (size > 0x7f800000) return Form::NOT_A_NUMBER;
    unsigned code;
#if defined(__gfx942__) || defined(__gfx950__)
    if constexpr (Form::NATIVE) {  // of what is in range: the instructions' overflow depends on the wave's mode
        const float magnitude = __builtin_fminf(__builtin_fabsf(x), Form::MAXIMUM);
        if constexpr (Form::E4M3)
            code = __builtin_amdgcn_cvt_pk_fp8_f32(magnitude, magnitude, 0, false) & 0x7f;
        else
            code = __builtin_amdgcn_cvt_pk_bf8_f32(magnitude, magnitude, 0, false) & 0x7f;
        if (size >= first_beyond_float8<FORMAT>()) code = Form::LARGEST + 1;
    } else
#endif
    if (size < (unsigned)(128 - Form::BIAS) << 23) {  // subnormal: a sum with a number whose last place is the smallest
        const unsigned large = (unsigned)(127 + 24 - Form::BIAS - Form::MANTISSA) << 23;
        float sum, magnitude = __builtin_fabsf(x);
        __builtin_memcpy(&sum, &large, 4);
        sum += magnitude;
        __builtin_memcpy(&code, &sum, 4);
        code -= large;
    } else {
        constexpr int SHIFT = 23 - Form::MANTISSA;
        const unsigned rounded = size + ((size >> SHIFT) & 1) + ((1u << (SHIFT - 1)) - 1);
        code = (rounded >> SHIFT) - ((unsigned)(127 - Form::BIAS) << Form::MANTISSA);
    }
    if (code > Form::LARGEST) {
        if (!SATURATE && !Form::INFINITE) return Form::NOT_A_NUMBER;
        code = SATURATE ? Form::LARGEST : Form::LARGEST + 1;
    }
    return (unsigned char)(Form::FNUZ && code == 0 ? 0 : code | sign);
}

// An 8-bit float in memory. Conversion is torch's: E4M3FN saturates, E5M2 overflows to infinity, FNUZ forms to NaN.
template <int FORMAT>
struct Float8Number {
    unsigned char code;
    Float8Number() = default;
    __device__ __forceinline__ explicit Float8Number(float x)
        : code(float_to_float8<FORMAT, FORMAT == FLOAT8_E4M3FN>(x)) {}
    __device__ __forceinline__ explicit operator float() const { return float8_to_float<FORMAT>(code); }
};
typedef Float8Number<FLOAT8_E4M3FN> Float8E4M3FN;
typedef Float8Number<FLOAT8_E5M2> Float8E5M2;
typedef Float8Number<FLOAT8_E4M3FNUZ> Float8E4M3FNUZ;
typedef Float8Number<FLOAT8_E5M2FNUZ> Float8E5M2FNUZ;

__device__ inline float round_float8_e4m3fn(float x) {
    return (float)Float8E4M3FN(x);
}

__device__ inline float round_float8_e5m2(float x) {
    return (float)Float8E5M2(x);
}

__device__ inline float round_float8_e4m3fnuz(float x) {
    return (float)Float8E4M3FNUZ(x);
}

__device__ inline float round_float8_e5m2fnuz(float x) {
    return (float)Float8E5M2FNUZ(x);
}
