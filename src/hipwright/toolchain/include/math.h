// <math.h>: device math, see hw/math.h.
#pragma once
#ifdef __CUDACC_RTC__
#include "hw/nvidia_math.h"
#else
#include "hw/math.h"
#endif
