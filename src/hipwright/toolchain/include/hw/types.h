// Vector types: float4, int2, ... with make_*, operators and dim3. Sizes and alignments are HIP's.
#pragma once
#include "attr.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define HW_BINARY2(V, T, OP)                                                                                           \
    HW_FN V operator OP(V a, V b) { return V(a.x OP b.x, a.y OP b.y); }                                                \
    HW_FN V operator OP(V a, T b) { return V(a.x OP b, a.y OP b); }                                                    \
    HW_FN V operator OP(T a, V b) { return V(a OP b.x, a OP b.y); }                                                    \
    HW_FN V &operator OP##=(V &a, V b) { return a = a OP b; }                                                          \
    HW_FN V &operator OP##=(V &a, T b) { return a = a OP b; }
#define HW_BINARY3(V, T, OP)                                                                                           \
    HW_FN V operator OP(V a, V b) { return V(a.x OP b.x, a.y OP b.y, a.z OP b.z); }                                    \
    HW_FN V operator OP(V a, T b) { return V(a.x OP b, a.y OP b, a.z OP b); }                                          \
    HW_FN V operator OP(T a, V b) { return V(a OP b.x, a OP b.y, a OP b.z); }                                          \
    HW_FN V &operator OP##=(V &a, V b) { return a = a OP b; }                                                          \
    HW_FN V &operator OP##=(V &a, T b) { return a = a OP b; }
#define HW_BINARY4(V, T, OP)                                                                                           \
    HW_FN V operator OP(V a, V b) { return V(a.x OP b.x, a.y OP b.y, a.z OP b.z, a.w OP b.w); }                        \
    HW_FN V operator OP(V a, T b) { return V(a.x OP b, a.y OP b, a.z OP b, a.w OP b); }                                \
    HW_FN V operator OP(T a, V b) { return V(a OP b.x, a OP b.y, a OP b.z, a OP b.w); }                                \
    HW_FN V &operator OP##=(V &a, V b) { return a = a OP b; }                                                          \
    HW_FN V &operator OP##=(V &a, T b) { return a = a OP b; }

#define HW_FLOAT_OPS(N, V, T)                                                                                          \
    HW_BINARY##N(V, T, +) HW_BINARY##N(V, T, -) HW_BINARY##N(V, T, *) HW_BINARY##N(V, T, /)
#define HW_INT_OPS(N, V, T)                                                                                            \
    HW_FLOAT_OPS(N, V, T) HW_BINARY##N(V, T, %) HW_BINARY##N(V, T, &) HW_BINARY##N(V, T, |) HW_BINARY##N(V, T, ^)

#define HW_VECTORS(NAME, T, OPS, A1, A2, A4)                                                                           \
    struct __attribute__((aligned(A1))) NAME##1 {                                                                      \
        T x;                                                                                                           \
        NAME##1() = default;                                                                                           \
        constexpr HW_METHOD NAME##1(T x) : x(x) {}                                                                     \
    };                                                                                                                 \
    struct __attribute__((aligned(A2))) NAME##2 {                                                                      \
        T x, y;                                                                                                        \
        NAME##2() = default;                                                                                           \
        constexpr HW_METHOD NAME##2(T x, T y) : x(x), y(y) {}                                                          \
        explicit constexpr HW_METHOD NAME##2(T v) : x(v), y(v) {}                                                      \
    };                                                                                                                 \
    struct __attribute__((aligned(A1))) NAME##3 {                                                                      \
        T x, y, z;                                                                                                     \
        NAME##3() = default;                                                                                           \
        constexpr HW_METHOD NAME##3(T x, T y, T z) : x(x), y(y), z(z) {}                                               \
        explicit constexpr HW_METHOD NAME##3(T v) : x(v), y(v), z(v) {}                                                \
    };                                                                                                                 \
    struct __attribute__((aligned(A4))) NAME##4 {                                                                      \
        T x, y, z, w;                                                                                                  \
        NAME##4() = default;                                                                                           \
        constexpr HW_METHOD NAME##4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}                                    \
        explicit constexpr HW_METHOD NAME##4(T v) : x(v), y(v), z(v), w(v) {}                                          \
    };                                                                                                                 \
    HW_CFN NAME##1 make_##NAME##1(T x) { return NAME##1(x); }                                                          \
    HW_CFN NAME##2 make_##NAME##2(T x, T y) { return NAME##2(x, y); }                                                  \
    HW_CFN NAME##3 make_##NAME##3(T x, T y, T z) { return NAME##3(x, y, z); }                                          \
    HW_CFN NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4(x, y, z, w); }                                  \
    OPS(2, NAME##2, T) OPS(3, NAME##3, T) OPS(4, NAME##4, T)                                                           \
    HW_FN NAME##2 operator-(NAME##2 a) { return NAME##2(-a.x, -a.y); }                                                 \
    HW_FN NAME##3 operator-(NAME##3 a) { return NAME##3(-a.x, -a.y, -a.z); }                                           \
    HW_FN NAME##4 operator-(NAME##4 a) { return NAME##4(-a.x, -a.y, -a.z, -a.w); }                                     \
    HW_FN bool operator==(NAME##2 a, NAME##2 b) { return a.x == b.x && a.y == b.y; }                                   \
    HW_FN bool operator==(NAME##3 a, NAME##3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; }                     \
    HW_FN bool operator==(NAME##4 a, NAME##4 b) { return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w; }       \
    HW_FN bool operator!=(NAME##2 a, NAME##2 b) { return !(a == b); }                                                  \
    HW_FN bool operator!=(NAME##3 a, NAME##3 b) { return !(a == b); }                                                  \
    HW_FN bool operator!=(NAME##4 a, NAME##4 b) { return !(a == b); }

HW_VECTORS(char, signed char, HW_INT_OPS, 1, 2, 4)
HW_VECTORS(uchar, unsigned char, HW_INT_OPS, 1, 2, 4)
HW_VECTORS(short, short, HW_INT_OPS, 2, 4, 8)
HW_VECTORS(ushort, unsigned short, HW_INT_OPS, 2, 4, 8)
HW_VECTORS(int, int, HW_INT_OPS, 4, 8, 16)
HW_VECTORS(uint, unsigned, HW_INT_OPS, 4, 8, 16)
HW_VECTORS(long, long, HW_INT_OPS, 8, 16, 32)
HW_VECTORS(ulong, unsigned long, HW_INT_OPS, 8, 16, 32)
HW_VECTORS(longlong, long long, HW_INT_OPS, 8, 16, 32)
HW_VECTORS(ulonglong, unsigned long long, HW_INT_OPS, 8, 16, 32)
HW_VECTORS(float, float, HW_FLOAT_OPS, 4, 8, 16)
HW_VECTORS(double, double, HW_FLOAT_OPS, 8, 16, 32)

struct dim3 {
    unsigned x, y, z;
    constexpr HW_METHOD dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr HW_METHOD dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr HW_METHOD operator uint3() const { return uint3(x, y, z); }
};
