// <stddef.h>: size_t, ptrdiff_t, NULL, offsetof.
#pragma once
#include "hw/attr.h"
#define offsetof(type, member) __builtin_offsetof(type, member)
