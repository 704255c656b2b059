// Vector types: float4, int2, ... with make_*, operators and dim3. Sizes and alignments are HIP's.
#pragma once
#include "attr.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define HW_VECTORS(NAME, HwT, A1, A2, A4)                                                                              \
    struct __attribute__((aligned(A1))) NAME##1 {                                                                      \
        HwT x;                                                                                                         \
        NAME##1() = default;                                                                                           \
        constexpr HW_METHOD NAME##1(HwT x) : x(x) {}                                                                   \
    };                                                                                                                 \
    struct __attribute__((aligned(A2))) NAME##2 {                                                                      \
        typedef NAME##2 hw_vector;                                                                                     \
        typedef HwT hw_scalar;                                                                                         \
        static constexpr int hw_size = 2;                                                                              \
        HwT x, y;                                                                                                      \
        NAME##2() = default;                                                                                           \
        constexpr HW_METHOD NAME##2(HwT x, HwT y) : x(x), y(y) {}                                                      \
        explicit constexpr HW_METHOD NAME##2(HwT v) : x(v), y(v) {}                                                    \
    };                                                                                                                 \
    struct __attribute__((aligned(A1))) NAME##3 {                                                                      \
        typedef NAME##3 hw_vector;                                                                                     \
        typedef HwT hw_scalar;                                                                                         \
        static constexpr int hw_size = 3;                                                                              \
        HwT x, y, z;                                                                                                   \
        NAME##3() = default;                                                                                           \
        constexpr HW_METHOD NAME##3(HwT x, HwT y, HwT z) : x(x), y(y), z(z) {}                                         \
        explicit constexpr HW_METHOD NAME##3(HwT v) : x(v), y(v), z(v) {}                                              \
    };                                                                                                                 \
    struct __attribute__((aligned(A4))) NAME##4 {                                                                      \
        typedef NAME##4 hw_vector;                                                                                     \
        typedef HwT hw_scalar;                                                                                         \
        static constexpr int hw_size = 4;                                                                              \
        HwT x, y, z, w;                                                                                                \
        NAME##4() = default;                                                                                           \
        constexpr HW_METHOD NAME##4(HwT x, HwT y, HwT z, HwT w) : x(x), y(y), z(z), w(w) {}                            \
        explicit constexpr HW_METHOD NAME##4(HwT v) : x(v), y(v), z(v), w(v) {}                                        \
    };                                                                                                                 \
    HW_CFN NAME##1 make_##NAME##1(HwT x) { return NAME##1(x); }                                                        \
    HW_CFN NAME##2 make_##NAME##2(HwT x, HwT y) { return NAME##2(x, y); }                                              \
    HW_CFN NAME##3 make_##NAME##3(HwT x, HwT y, HwT z) { return NAME##3(x, y, z); }                                    \
    HW_CFN NAME##4 make_##NAME##4(HwT x, HwT y, HwT z, HwT w) { return NAME##4(x, y, z, w); }

HW_VECTORS(char, signed char, 1, 2, 4)
HW_VECTORS(uchar, unsigned char, 1, 2, 4)
HW_VECTORS(short, short, 2, 4, 8)
HW_VECTORS(ushort, unsigned short, 2, 4, 8)
HW_VECTORS(int, int, 4, 8, 16)
HW_VECTORS(uint, unsigned, 4, 8, 16)
HW_VECTORS(long, long, 8, 16, 32)
HW_VECTORS(ulong, unsigned long, 8, 16, 32)
HW_VECTORS(longlong, long long, 8, 16, 32)
HW_VECTORS(ulonglong, unsigned long long, 8, 16, 32)
HW_VECTORS(float, float, 4, 8, 16)
HW_VECTORS(double, double, 8, 16, 32)

// Operators are templates over every vector type: 36 types times 8 operators written out would cost each compile 0.2 s.
#define HW_VECTOR_OP(OP)                                                                                               \
    template <class HwV> HW_FN typename HwV::hw_vector operator OP(HwV a, HwV b) {                                     \
        HwV r;                                                                                                         \
        r.x = a.x OP b.x, r.y = a.y OP b.y;                                                                            \
        if constexpr (HwV::hw_size > 2) r.z = a.z OP b.z;                                                              \
        if constexpr (HwV::hw_size > 3) r.w = a.w OP b.w;                                                              \
        return r;                                                                                                      \
    }                                                                                                                  \
    template <class HwV> HW_FN typename HwV::hw_vector operator OP(HwV a, typename HwV::hw_scalar b) {                 \
        return a OP HwV(b);                                                                                            \
    }                                                                                                                  \
    template <class HwV> HW_FN typename HwV::hw_vector operator OP(typename HwV::hw_scalar a, HwV b) {                 \
        return HwV(a) OP b;                                                                                            \
    }                                                                                                                  \
    template <class HwV> HW_FN typename HwV::hw_vector &operator OP##=(HwV &a, HwV b) { return a = a OP b; }           \
    template <class HwV> HW_FN typename HwV::hw_vector &operator OP##=(HwV &a, typename HwV::hw_scalar b) {            \
        return a = a OP HwV(b);                                                                                        \
    }
HW_VECTOR_OP(+)
HW_VECTOR_OP(-)
HW_VECTOR_OP(*)
HW_VECTOR_OP(/)
HW_VECTOR_OP(%)
HW_VECTOR_OP(&)
HW_VECTOR_OP(|)
HW_VECTOR_OP(^)
#undef HW_VECTOR_OP
template <class HwV> HW_FN typename HwV::hw_vector operator-(HwV a) { // -0.0 for 0.0, so not 0 - a
    HwV r;
    r.x = -a.x, r.y = -a.y;
    if constexpr (HwV::hw_size > 2) r.z = -a.z;
    if constexpr (HwV::hw_size > 3) r.w = -a.w;
    return r;
}
template <class HwV, class = typename HwV::hw_vector> HW_FN bool operator==(HwV a, HwV b) {
    bool same = a.x == b.x && a.y == b.y;
    if constexpr (HwV::hw_size > 2) same = same && a.z == b.z;
    if constexpr (HwV::hw_size > 3) same = same && a.w == b.w;
    return same;
}
template <class HwV, class = typename HwV::hw_vector> HW_FN bool operator!=(HwV a, HwV b) { return !(a == b); }

struct dim3 {
    unsigned x, y, z;
    constexpr HW_METHOD dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr HW_METHOD dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr HW_METHOD operator uint3() const { return uint3(x, y, z); }
};
