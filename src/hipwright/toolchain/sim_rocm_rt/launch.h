// Code objects of the simulated ROCm and their launches: the section that `toolchain/sim_rocm/image.py` writes, read back.
#pragma once
#include "../sim_rt/run.cc"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OUT_OF_MEMORY = 2, BAD_CONFIGURATION = 9, BAD_IMAGE = 200, OTHER_GPU = 209, BAD_HANDLE = 400, NO_SUCH_KERNEL = 500,
    ILLEGAL_ADDRESS = 700, TIMED_OUT = 702, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801
};
enum { LIMIT_US = 10 * 1000 * 1000 }; // of processor time, one launch
static const u64 UNWRITTEN = 0x7ea57ea57ea57ea5ull; // what registers and LDS hold before they are written

struct ImageHead { char magic[16]; u32 ops, handlers, kernels, args, names; };
struct ImageKernel { Kernel abi; u32 kernarg_bytes, threads, first_arg, arg_count; };
struct ImageArg { u32 kind, offset, size; }; // kind 0: named in the source; else 1 + the number of a hidden value

struct Module {
    Program *program;
    u8 *data; // a copy of the section
    u32 kernels;
    const ImageKernel *kernel;
    const ImageArg *args;
    const char **names;
};
struct Function { Module *module; const ImageKernel *kernel; };

struct Call { // a launch with its arguments, as a graph keeps it
    const Function *function;
    u32 grid[3], block[3], lds;
    u64 bytes; // of the segment, with the dispatch packet
    u8 *segment;
};

COLD static void say(const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text - 1, format, list);
    va_end(list);
    n = n < (int)sizeof text - 2 ? n : (int)sizeof text - 2;
    text[n] = '\n';
    if (write(2, text, (size_t)n + 1) < 0) return;
}

// ---------------------------------------------------------------- modules

template <class T> static T at(const u8 *p, u64 offset) { T x; memcpy(&x, p + offset, sizeof x); return x; }
// The section `.hipwright.simulated` of a code object, and its size; null without one.
static const u8 *section(const u8 *elf, u64 *size) {
    u64 table = at<u64>(elf, 0x28);
    u32 each = at<u16>(elf, 0x3a), count = at<u16>(elf, 0x3c), names = at<u16>(elf, 0x3e);
    const u8 *strings = elf + at<u64>(elf, table + (u64)names * each + 0x18);
    for (u32 i = 0; i < count; i++) {
        u64 entry = table + (u64)i * each;
        if (strcmp((const char *)strings + at<u32>(elf, entry), ".hipwright.simulated")) continue;
        *size = at<u64>(elf, entry + 0x20);
        return elf + at<u64>(elf, entry + 0x18);
    }
    return nullptr;
}
static void free_module(Module *m) {
    if (m->program) sim_free(m->program);
    free(m->data);
    free(m->names);
    free(m);
}
static int load_module(Module **out, const u8 *elf) {
    u64 size = 0;
    if (memcmp(elf, "\x7f" "ELF\2\1\1", 7) || at<u16>(elf, 0x12) != 224) return BAD_IMAGE;
    if ((at<u32>(elf, 0x30) & 0xff) != ELF_MACHINE) return OTHER_GPU;
    const u8 *found = section(elf, &size);
    if (!found || size < sizeof(ImageHead) || memcmp(found, "hipwright sim 1\n", 16)) {
        say("simulated GPU: the code object was not built by the simulated ROCm's hipcc or hipRTC, and cannot be run");
        return NOT_SUPPORTED;
    }
    Module *m = (Module *)calloc(1, sizeof(Module));
    m->data = (u8 *)malloc(size);
    memcpy(m->data, found, size);
    ImageHead head = at<ImageHead>(m->data, 0);
    u64 kernels = sizeof head, args = kernels + (u64)head.kernels * sizeof(ImageKernel);
    u64 ops = args + (u64)head.args * sizeof(ImageArg), names = ops + (u64)head.ops * sizeof(Op);
    m->names = (const char **)calloc(head.names + 1, sizeof(char *));
    const char *text = (const char *)m->data + names;
    for (u32 i = 0; i < head.names; i++, text += strlen(text) + 1) m->names[i] = text;
    m->kernels = head.kernels;
    m->kernel = (const ImageKernel *)(m->data + kernels);
    m->args = (const ImageArg *)(m->data + args);
    m->program = sim_load((const Op *)(m->data + ops), head.ops, m->names, head.handlers);
    m->names += head.handlers;
    *out = m;
    return 0;
}

// ---------------------------------------------------------------- arguments

static u64 hidden(u32 number, const Call &c) { // as `image.HIDDEN` counts them
    u32 dims = c.grid[2] > 1 || c.block[2] > 1 ? 3 : c.grid[1] > 1 || c.block[1] > 1 ? 2 : 1;
    const u64 values[] = {c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2], dims, c.lds, PRIVATE_APERTURE, LDS_APERTURE};
    return number < sizeof values / 8 ? values[number] : 0;
}
// The kernel argument segment and, behind it, the dispatch packet, as the HSA ABI has them (LLVM's AMDGPUUsage).
static void pack(Call &c, void **params) {
    const ImageKernel &k = *c.function->kernel;
    u64 arguments = ((k.kernarg_bytes > 8 ? k.kernarg_bytes : 8) + 15) / 16 * 16;
    c.bytes = arguments + 64;
    c.segment = (u8 *)calloc(1, c.bytes);
    u32 named = 0;
    for (u32 i = 0; i < k.arg_count; i++) {
        const ImageArg &arg = c.function->module->args[k.first_arg + i];
        u64 value = arg.kind ? hidden(arg.kind - 1, c) : 0;
        memcpy(c.segment + arg.offset, arg.kind ? (const void *)&value : params[named], arg.size);
        named += !arg.kind;
    }
    u8 *packet = c.segment + arguments;
    const u16 head[] = {2, (u16)hidden(6, c), (u16)c.block[0], (u16)c.block[1], (u16)c.block[2], 0};
    memcpy(packet, head, 12);
    for (int i = 0; i < 3; i++) { u32 size = c.grid[i] * c.block[i]; memcpy(packet + 12 + 4 * i, &size, 4); }
    const u32 segments[] = {k.abi.scratch, k.abi.lds + c.lds};
    memcpy(packet + 24, segments, 8);
}

// ---------------------------------------------------------------- running

// As AMD's runtime does for a fault of a kernel: one line, and the end of the process.
static void fault(int, siginfo_t *info, void *) {
    say("Memory access fault by GPU node-1 (Agent handle: simulated) on address %p. Reason: Page not present or supervisor privilege.", info->si_addr);
    signal(SIGABRT, SIG_DFL);
    abort();
}
static int run_call(const Call &c) {
    Region all = {0, ~0ull >> 1, 1, -1, 0, 0};
    Launch l = {};
    l.program = c.function->module->program;
    l.kernel = &c.function->kernel->abi;
    l.kernarg = c.segment;
    l.kernarg_bytes = c.bytes;
    memcpy(l.grid, c.grid, 12);
    memcpy(l.block, c.block, 12);
    l.lds_dynamic = c.lds;
    l.checked = 1;
    l.poison = UNWRITTEN;
    l.limit_us = LIMIT_US;
    l.regions = &all;
    l.region_count = 1;
    struct sigaction act, segv, bus;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = fault;
    act.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &act, &segv);
    sigaction(SIGBUS, &act, &bus);
    sim_run(&l);
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    if (!l.status) return 0;
    say("simulated GPU: %s (assembly line %u, block %u %u %u, thread %u %u %u)", l.message, l.at.line, l.at.block[0],
        l.at.block[1], l.at.block[2], l.at.thread[0], l.at.thread[1], l.at.thread[2]);
    if (l.status == OUT_OF_BOUNDS) return ILLEGAL_ADDRESS;
    return l.status == TIMEOUT ? TIMED_OUT : l.status == UNSUPPORTED ? NOT_SUPPORTED : LAUNCH_FAILED;
}
