// Whether AMD's side of a choice between targets is compiled, for the other headers.
#pragma once
#include <hip/hip_runtime.h>

#if defined(__AMDGCN__) || defined(HW_AMD_SIDE)
#define HIPWRIGHT_AMD 1
#else
#define HIPWRIGHT_AMD 0
#endif
