// <hip/hip_bf16.h>
#pragma once
#include "hip_runtime.h"
