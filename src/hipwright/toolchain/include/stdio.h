// <stdio.h>: printf in a kernel is accepted and ignored (docs/toolchain.md).
#pragma once
#include "hw/attr.h"
template <class... HwArgs> HW_FN int printf(const char *, HwArgs...) { return 0; }
