// Whether products use AMD's matrix units (MFMA), and the types of their operands.
#pragma once
#include <hip/hip_runtime.h>

// GEMM_MFMA is 1 on the architectures that have them.
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || (defined(HW_AMD_SIDE) && HW_WAVE == 64)
#define GEMM_MFMA 1
using Accumulator = float __attribute__((ext_vector_type(4)));
using HalfFragment = _Float16 __attribute__((ext_vector_type(4)));
using BfloatFragment = short __attribute__((ext_vector_type(4)));
#else
#define GEMM_MFMA 0
#endif
