// Integer intrinsics and bit casts that need no hardware builtin of their own.
#pragma once
#include "attr.h"

HW_CFN int __float_as_int(float x) { return hw_bits<int>(x); }
HW_CFN unsigned __float_as_uint(float x) { return hw_bits<unsigned>(x); }
HW_CFN float __int_as_float(int x) { return hw_bits<float>(x); }
HW_CFN float __uint_as_float(unsigned x) { return hw_bits<float>(x); }
HW_CFN long long __double_as_longlong(double x) { return hw_bits<long long>(x); }
HW_CFN double __longlong_as_double(long long x) { return hw_bits<double>(x); }
HW_CFN int __double2hiint(double x) { return (int)(hw_bits<long long>(x) >> 32); }
HW_CFN int __double2loint(double x) { return (int)hw_bits<long long>(x); }
HW_CFN double __hiloint2double(int hi, int lo) {
    return hw_bits<double>((long long)(((unsigned long long)(unsigned)hi << 32) | (unsigned)lo));
}

HW_FN int __popc(unsigned x) { return __builtin_popcount(x); }
HW_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HW_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
HW_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
HW_FN int __ffs(int x) { return x ? __builtin_ctz((unsigned)x) + 1 : 0; }
HW_FN int __ffs(unsigned x) { return x ? __builtin_ctz(x) + 1 : 0; }
HW_FN int __ffsll(long long x) { return x ? __builtin_ctzll((unsigned long long)x) + 1 : 0; }
HW_FN int __ffsll(unsigned long long x) { return x ? __builtin_ctzll(x) + 1 : 0; }
HW_FN int __ffsll(unsigned long x) { return x ? __builtin_ctzll(x) + 1 : 0; }
HW_FN unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
HW_FN unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }
HW_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    unsigned long long v = ((unsigned long long)y << 32) | x;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) r |= (unsigned)((v >> (8 * ((s >> (4 * i)) & 7))) & 0xff) << (8 * i);
    return r;
}
HW_FN unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)((((unsigned long long)hi << 32 | lo) << (n & 31)) >> 32);
}
HW_FN unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
HW_FN int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
HW_FN unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
HW_FN int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
HW_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
HW_FN long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
HW_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
HW_FN int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
HW_FN int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
HW_FN unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
HW_FN unsigned __sad(int a, int b, unsigned c) {
    return c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a);
}

// The compiler turns a load through a const __restrict__ pointer into a read-only load by itself.
template <class HwT> HW_FN HwT __ldg(const HwT *p) { return *p; }
