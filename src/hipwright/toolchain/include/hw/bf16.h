// __hip_bfloat16 and __hip_bfloat162: the text that programs include with AMD's headers.
#pragma once
#include "math.h"
#include "types.h"

#include "../hipwright/bfloat16_type.h"
