// <hip/hip_vector_types.h>
#pragma once
#include "../hw/types.h"
