// INFINITY and NAN, which hipRTC does not define.
#pragma once
#include <hip/hip_runtime.h>

#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
