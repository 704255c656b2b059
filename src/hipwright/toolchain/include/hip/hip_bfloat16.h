// <hip/hip_bfloat16.h>: the older name of the type.
#pragma once
#include "hip_runtime.h"
typedef __hip_bfloat16 hip_bfloat16;
