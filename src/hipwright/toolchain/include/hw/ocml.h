// AMD's device math library, where its bitcode is linked (HW_OCML): the same names as our own functions.
#pragma once
#include "attr.h"
#define HW_OCML1(NAME, OCML)                                                                                           \
    extern "C" __device__ __attribute__((const)) float __ocml_##OCML##_f32(float);                                     \
    extern "C" __device__ __attribute__((const)) double __ocml_##OCML##_f64(double);                                   \
    HW_FN float hw_ocml_##NAME##f(float x) { return __ocml_##OCML##_f32(x); }                                          \
    HW_FN double hw_ocml_##NAME(double x) { return __ocml_##OCML##_f64(x); }
#define HW_OCML2(NAME, OCML)                                                                                           \
    extern "C" __device__ __attribute__((const)) float __ocml_##OCML##_f32(float, float);                              \
    extern "C" __device__ __attribute__((const)) double __ocml_##OCML##_f64(double, double);                           \
    HW_FN float hw_ocml_##NAME##f(float x, float y) { return __ocml_##OCML##_f32(x, y); }                              \
    HW_FN double hw_ocml_##NAME(double x, double y) { return __ocml_##OCML##_f64(x, y); }
