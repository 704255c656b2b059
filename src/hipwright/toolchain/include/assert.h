// <assert.h>: a false assertion traps (the kernel stops with an error; nothing is printed).
#pragma once
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : __builtin_trap())
#endif
