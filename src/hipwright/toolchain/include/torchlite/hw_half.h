// c10::Half and c10::BFloat16: storage of 16 bits, arithmetic in float. HW_HALF: the source uses them, so CUDA's own
// conversions are worth their headers.
#pragma once
#if defined(__CUDACC__) && defined(HW_HALF)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace hw {
HW_BOTH inline uint32_t bits_of(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
HW_BOTH inline float of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
HW_BOTH inline float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) return of_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent == 0) {
        float v = (float)fraction * 5.9604644775390625e-8f;
        return of_bits(sign | bits_of(v));
    }
    return of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}
HW_BOTH inline uint16_t float_to_half(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { // below the smallest normal: in units of 2^-24, rounded to even by adding 2^23
        float v = of_bits(a) * 16777216.0f + 8388608.0f;
        return (uint16_t)(sign | (bits_of(v) & 0x7fffu));
    }
    uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}
HW_BOTH inline uint16_t float_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)0x7fc0u;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
} // namespace hw

namespace c10 {
struct alignas(2) Half {
    uint16_t x;
    Half() = default;
#if defined(__CUDACC__) && defined(HW_HALF)
    HW_BOTH Half(float f) : x(__half_as_ushort(__float2half_rn(f))) {}
    HW_BOTH operator float() const { return __half2float(__ushort_as_half(x)); }
    HW_BOTH Half(const __half &h) : x(__half_as_ushort(h)) {}
    HW_BOTH operator __half() const { return __ushort_as_half(x); }
#else
    HW_BOTH Half(float f) : x(hw::float_to_half(f)) {}
    HW_BOTH operator float() const { return hw::half_to_float(x); }
#endif
};
struct alignas(2) BFloat16 {
    uint16_t x;
    BFloat16() = default;
    HW_BOTH BFloat16(float f) : x(hw::float_to_bf16(f)) {}
    HW_BOTH operator float() const { return hw::of_bits((uint32_t)x << 16); }
#if defined(__CUDACC__) && defined(HW_HALF)
    HW_BOTH BFloat16(const __nv_bfloat16 &h) : x(__bfloat16_as_ushort(h)) {}
    HW_BOTH operator __nv_bfloat16() const { return __ushort_as_bfloat16(x); }
#endif
};
#define HW_ARITHMETIC(T)                                                                                               \
    HW_BOTH inline T operator+(const T &a, const T &b) { return T((float)a + (float)b); }                              \
    HW_BOTH inline T operator-(const T &a, const T &b) { return T((float)a - (float)b); }                              \
    HW_BOTH inline T operator*(const T &a, const T &b) { return T((float)a * (float)b); }                              \
    HW_BOTH inline T operator/(const T &a, const T &b) { return T((float)a / (float)b); }                              \
    HW_BOTH inline T operator-(const T &a) { return T(-(float)a); }                                                    \
    HW_BOTH inline T &operator+=(T &a, const T &b) { return a = a + b; }                                               \
    HW_BOTH inline T &operator-=(T &a, const T &b) { return a = a - b; }                                               \
    HW_BOTH inline T &operator*=(T &a, const T &b) { return a = a * b; }                                               \
    HW_BOTH inline T &operator/=(T &a, const T &b) { return a = a / b; }                                               \
    HW_BOTH inline float operator+(const T &a, float b) { return (float)a + b; }                                       \
    HW_BOTH inline float operator-(const T &a, float b) { return (float)a - b; }                                       \
    HW_BOTH inline float operator*(const T &a, float b) { return (float)a * b; }                                       \
    HW_BOTH inline float operator/(const T &a, float b) { return (float)a / b; }                                       \
    HW_BOTH inline float operator+(float a, const T &b) { return a + (float)b; }                                       \
    HW_BOTH inline float operator-(float a, const T &b) { return a - (float)b; }                                       \
    HW_BOTH inline float operator*(float a, const T &b) { return a * (float)b; }                                       \
    HW_BOTH inline float operator/(float a, const T &b) { return a / (float)b; }
HW_ARITHMETIC(Half) HW_ARITHMETIC(BFloat16)
#undef HW_ARITHMETIC
} // namespace c10

namespace hw {
template <class T> constexpr c10::ScalarType scalar_of() {
    using S = c10::ScalarType;
    if (std::is_same<T, float>::value) return S::Float;
    if (std::is_same<T, double>::value) return S::Double;
    if (std::is_same<T, c10::Half>::value) return S::Half;
    if (std::is_same<T, c10::BFloat16>::value) return S::BFloat16;
#if defined(__CUDACC__) && defined(HW_HALF)
    if (std::is_same<T, __half>::value) return S::Half;
    if (std::is_same<T, __nv_bfloat16>::value) return S::BFloat16;
#endif
    if (std::is_same<T, bool>::value) return S::Bool;
    if (std::is_same<T, uint8_t>::value) return S::Byte;
    if (std::is_integral<T>::value && sizeof(T) == 8) return S::Long;
    if (std::is_integral<T>::value && sizeof(T) == 4) return S::Int;
    if (std::is_integral<T>::value && sizeof(T) == 2) return S::Short;
    if (std::is_integral<T>::value && sizeof(T) == 1) return S::Char;
    return S::Undefined;
}
} // namespace hw
