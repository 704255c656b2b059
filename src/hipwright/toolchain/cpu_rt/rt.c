// One translation unit: toolchain/cpu/build.py compiles this file, once for each version of its text.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "rt.h"
static void catch_faults(void);
static void release_faults(void);
static void hw_check_begin(void);
static void hw_forget(void);
static void hw_access(uint64_t address, uint64_t size, uint32_t access, uint32_t line);
static void sync_launch(void);
static void sync_block(hw_block *b);
static void sync_barrier(hw_block *b);
static void sync_wave(hw_wave *w, uint64_t mask);

#include "switch.c"
#include "sched.c"
#include "wave.c"
#include "fault.c"
#include "sync.c"
#include "check.c"
#include "atomic.c"
#include "mfma.c"
#include "convert.c"
