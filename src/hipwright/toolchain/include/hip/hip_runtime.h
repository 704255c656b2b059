// hipwright's own HIP device header: what kernels use, with no host API. See docs/toolchain.md.
#pragma once
#include "../hw/attr.h"
#include "../stdint.h"
#include "../stdio.h"
#include "../assert.h"
#include "../limits.h"
#include "../float.h"
#include "../hw/types.h"
#ifdef __CUDACC_RTC__
#include "../hw/nvidia.h"
#else
#include "../hw/math.h"
#include "../hw/half.h"
#include "../hw/bf16.h"
#include "../hw/bits.h"
#if HW_AMD
#include "../hw/amdgcn.h"
#else
#include "../hw/cpu.h"
#endif
#endif
