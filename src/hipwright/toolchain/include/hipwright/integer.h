// Integer functions with torch's rounding and signs.
#pragma once
#include <hip/hip_runtime.h>

__device__ inline int floor_mod(int a, int b) {
    const int m = a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

__device__ inline long floor_mod(long a, long b) {
    const long m = a % b;
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

__device__ inline int truncated_mod(int a, int b) {
    return a % b;
}

__device__ inline long truncated_mod(long a, long b) {
    return a % b;
}

__device__ inline int floor_div(int a, int b) {
    const int q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

__device__ inline long floor_div(long a, long b) {
    const long q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

__device__ inline int shift_left(int a, int b) {
    const unsigned int bits = a;
    return b < 0 || b >= 8 * (int)sizeof(a) ? 0 : bits << b;
}

__device__ inline long shift_left(long a, long b) {
    const unsigned long bits = a;
    return b < 0 || b >= 8 * (int)sizeof(a) ? 0 : bits << b;
}

__device__ inline int shift_right(int a, int b) {
    const int most = 8 * (int)sizeof(a) - 1;
    return a >> (b < 0 || b > most ? most : b);
}

__device__ inline long shift_right(long a, long b) {
    const long most = 8 * (int)sizeof(a) - 1;
    return a >> (b < 0 || b > most ? most : b);
}

__device__ inline int integer_pow(int a, int b) {
    if (b < 0) return a == 1 ? 1 : (a == -1 ? (b & 1 ? -1 : 1) : 0);  // as torch: what is less than 1 is 0
    unsigned out = 1, power = a;
    for (; b > 0; b >>= 1, power *= power) {
        if (b & 1) out *= power;
    }
    return (int)out;
}

__device__ inline long integer_pow(long a, long b) {
    if (b < 0) return a == 1 ? 1 : (a == -1 ? (b & 1 ? -1 : 1) : 0);  // as torch: what is less than 1 is 0
    unsigned long out = 1, power = a;
    for (; b > 0; b >>= 1, power *= power) {
        if (b & 1) out *= power;
    }
    return (long)out;
}
