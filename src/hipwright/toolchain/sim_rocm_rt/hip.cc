// libamdhip64.so of the simulated ROCm: the calls of HIP's runtime that hipwright makes, over the executor of sim_rt.
//
// Launches run to their end inside the call that enqueues them; what they fail with is reported by later calls, as by a
// device that works on its own. Device memory is the process's own, in mappings with unmapped pages around them. Names,
// numbers and structures are those of the documented API. Built by toolchain/sim_rocm/folder.py, which defines
// ARCHITECTURE, FEATURES, ELF_MACHINE, UNITS, WAVE, LDS_BYTES and MEMORY_BYTES.
#include "launch.h"
#include "properties.h"

#define API extern "C" __attribute__((visibility("default")))
#define NEED(test, code) do { if (!(test)) return failed(code); } while (0)
#define BEGIN() do { if (sticky) return sticky; } while (0)
enum { BAD_VALUE = 1, NO_DEVICE = 101, PAGE = 4096, LARGEST_BLOCK = 1024, VERSION = 60000000 };

struct Graph { Call *call; u32 count, room; };
struct Stream { Graph *recording; };
struct Event { i64 ns; bool recorded; };
static int sticky, last;
static Stream null_stream;

static int failed(int code) {
    if (code == ILLEGAL_ADDRESS || code == TIMED_OUT || code == LAUNCH_FAILED) sticky = code;
    return last = code;
}
static Stream &stream_of(void *handle) { return handle ? *(Stream *)handle : null_stream; }
static i64 now_ns(void) {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// ---------------------------------------------------------------- errors

API const char *hipGetErrorName(int code) {
    static const struct { int code; const char *name; } names[] = {
        {0, "hipSuccess"}, {BAD_VALUE, "hipErrorInvalidValue"}, {OUT_OF_MEMORY, "hipErrorOutOfMemory"},
        {BAD_CONFIGURATION, "hipErrorInvalidConfiguration"}, {NO_DEVICE, "hipErrorInvalidDevice"},
        {BAD_IMAGE, "hipErrorInvalidImage"}, {OTHER_GPU, "hipErrorNoBinaryForGpu"},
        {BAD_HANDLE, "hipErrorInvalidHandle"}, {NO_SUCH_KERNEL, "hipErrorNotFound"},
        {ILLEGAL_ADDRESS, "hipErrorIllegalAddress"}, {TIMED_OUT, "hipErrorLaunchTimeOut"},
        {LAUNCH_FAILED, "hipErrorLaunchFailure"}, {NOT_SUPPORTED, "hipErrorNotSupported"}};
    for (const auto &one : names) if (one.code == code) return one.name;
    return "hipErrorUnknown";
}
API int hipGetLastError(void) { int code = sticky ? sticky : last; last = 0; return code; }
API int hipPeekAtLastError(void) { return sticky ? sticky : last; }

// ---------------------------------------------------------------- the device

API int hipInit(unsigned) { BEGIN(); return 0; }
API int hipRuntimeGetVersion(int *version) { *version = VERSION; return 0; }
API int hipDriverGetVersion(int *version) { *version = VERSION; return 0; }
API int hipGetDeviceCount(int *count) { BEGIN(); *count = 1; return 0; }
API int hipSetDevice(int index) { BEGIN(); NEED(index == 0, NO_DEVICE); return 0; }
API int hipGetDevice(int *index) { BEGIN(); *index = 0; return 0; }
API int hipDeviceSynchronize(void) { BEGIN(); return 0; }
API int hipDeviceGetAttribute(int *value, int attribute, int index) {
    BEGIN();
    NEED(index == 0, NO_DEVICE);
    switch (attribute) { // hipDeviceAttribute_t
    case 29: *value = 0x7fffffff; return 0;
    case 30: case 31: *value = 65536; return 0;
    case 56: *value = LARGEST_BLOCK; return 0;
    case 63: *value = UNITS; return 0;
    case 74: *value = LDS_BYTES; return 0;
    case 87: *value = WAVE; return 0;
    }
    return failed(BAD_VALUE);
}
API int hipGetDevicePropertiesR0600(DeviceProperties *out, int index) {
    BEGIN();
    NEED(index == 0, NO_DEVICE);
    memset(out, 0, sizeof *out);
    strcpy(out->name, ARCHITECTURE " (simulated)");
    strcpy(out->gcnArchName, ARCHITECTURE FEATURES);
    out->totalGlobalMem = MEMORY_BYTES;
    out->sharedMemPerBlock = LDS_BYTES;
    out->warpSize = WAVE;
    out->multiProcessorCount = UNITS;
    out->maxThreadsPerBlock = LARGEST_BLOCK;
    return 0;
}

// ---------------------------------------------------------------- memory

// A mapping is [one page that holds its size][unmapped page][memory][unmapped page].
static u64 mapped(u64 size) { return (size + PAGE - 1) / PAGE * PAGE + 3 * PAGE; }
API int hipMalloc(void **address, size_t size) {
    BEGIN();
    NEED(address, BAD_VALUE);
    *address = nullptr;
    if (!size) return 0;
    NEED(size <= MEMORY_BYTES, OUT_OF_MEMORY);
    u8 *p = (u8 *)mmap(nullptr, mapped(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(p != MAP_FAILED, OUT_OF_MEMORY);
    if (mprotect(p, PAGE, PROT_READ | PROT_WRITE) || mprotect(p + 2 * PAGE, mapped(size) - 3 * PAGE, PROT_READ | PROT_WRITE)) {
        munmap(p, mapped(size));
        return failed(OUT_OF_MEMORY);
    }
    memcpy(p, &size, sizeof size);
    *address = p + 2 * PAGE;
    return 0;
}
API int hipFree(void *address) {
    if (!address) return 0;
    u8 *p = (u8 *)address - 2 * PAGE;
    munmap(p, mapped(at<u64>(p, 0)));
    return sticky;
}
API int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    BEGIN();
    NEED(kind >= 0 && kind <= 4, BAD_VALUE);
    memcpy(to, from, size);
    return 0;
}
API int hipMemset(void *to, int value, size_t size) { BEGIN(); memset(to, value, size); return 0; }

// ---------------------------------------------------------------- modules and launches

API int hipModuleLoadData(void **module, const void *image) {
    BEGIN();
    int code = load_module((Module **)module, (const u8 *)image);
    return code ? failed(code) : 0;
}
API int hipModuleUnload(void *module) {
    Module *m = (Module *)module;
    m->names -= at<ImageHead>(m->data, 0).handlers;
    free_module(m);
    return sticky;
}
API int hipModuleGetFunction(void **function, void *module, const char *name) {
    BEGIN();
    Module *m = (Module *)module;
    for (u32 i = 0; i < m->kernels; i++) {
        if (strcmp(m->names[i], name)) continue;
        Function *f = (Function *)malloc(sizeof(Function)); // as long as the process: a handle has no end of its own
        *f = {m, &m->kernel[i]};
        *function = f;
        return 0;
    }
    return failed(NO_SUCH_KERNEL);
}
API int hipFuncGetAttribute(int *value, int attribute, void *function) {
    BEGIN();
    const ImageKernel &k = *((Function *)function)->kernel;
    switch (attribute) { // hipFunction_attribute
    case 0: *value = (int)k.threads; return 0;
    case 1: *value = (int)k.abi.lds; return 0;
    case 3: *value = (int)k.abi.scratch; return 0;
    case 4: *value = (int)k.abi.vgprs; return 0;
    }
    return failed(BAD_VALUE);
}
API int hipModuleLaunchKernel(void *function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream, void **params, void **extra) {
    BEGIN();
    NEED(function, BAD_HANDLE);
    NEED(!extra, NOT_SUPPORTED);
    Call c = {(Function *)function, {gx, gy, gz}, {bx, by, bz}, lds, 0, nullptr};
    const ImageKernel &k = *c.function->kernel;
    u64 threads = (u64)bx * by * bz;
    NEED(gx && gy && gz && threads && threads <= k.threads && k.abi.lds + (u64)lds <= LDS_BYTES, BAD_CONFIGURATION);
    pack(c, params);
    if (Graph *g = stream_of(stream).recording) {
        if (g->count == g->room) g->call = (Call *)realloc(g->call, sizeof(Call) * (g->room = 2 * g->room + 4));
        g->call[g->count++] = c;
        return 0;
    }
    int code = run_call(c);
    free(c.segment);
    if (code) failed(code);
    return code == NOT_SUPPORTED ? code : 0; // a device reports what a kernel did later
}

// ---------------------------------------------------------------- streams, events, graphs

API int hipStreamCreate(void **stream) { BEGIN(); *stream = calloc(1, sizeof(Stream)); return 0; }
API int hipStreamDestroy(void *stream) { free(stream); return sticky; }
API int hipStreamSynchronize(void *) { BEGIN(); return 0; }
API int hipEventCreate(void **event) { BEGIN(); *event = calloc(1, sizeof(Event)); return 0; }
API int hipEventDestroy(void *event) { free(event); return sticky; }
API int hipEventRecord(void *event, void *) { BEGIN(); *(Event *)event = {now_ns(), true}; return 0; }
API int hipEventSynchronize(void *) { BEGIN(); return 0; }
API int hipEventElapsedTime(float *ms, void *start, void *end) { // by this machine's clock: no GPU's time
    BEGIN();
    NEED(((Event *)start)->recorded && ((Event *)end)->recorded, BAD_HANDLE);
    *ms = (float)((double)(((Event *)end)->ns - ((Event *)start)->ns) * 1e-6);
    return 0;
}
static void free_graph(Graph *g) {
    for (u32 i = 0; i < g->count; i++) free(g->call[i].segment);
    free(g->call);
    free(g);
}
API int hipStreamBeginCapture(void *stream, int) {
    BEGIN();
    NEED(stream && !stream_of(stream).recording, BAD_VALUE);
    stream_of(stream).recording = (Graph *)calloc(1, sizeof(Graph));
    return 0;
}
API int hipStreamEndCapture(void *stream, void **graph) {
    Graph *g = stream_of(stream).recording;
    NEED(g, BAD_VALUE);
    stream_of(stream).recording = nullptr;
    if (sticky) { free_graph(g); return sticky; }
    *graph = g;
    return 0;
}
API int hipGraphInstantiate(void **executable, void *graph, void **, char *, size_t) {
    BEGIN();
    const Graph *from = (Graph *)graph;
    Graph *g = (Graph *)calloc(1, sizeof(Graph));
    g->count = g->room = from->count;
    g->call = (Call *)calloc(from->count + 1, sizeof(Call));
    for (u32 i = 0; i < from->count; i++) {
        g->call[i] = from->call[i];
        g->call[i].segment = (u8 *)malloc(from->call[i].bytes);
        memcpy(g->call[i].segment, from->call[i].segment, from->call[i].bytes);
    }
    *executable = g;
    return 0;
}
API int hipGraphLaunch(void *executable, void *) {
    BEGIN();
    const Graph &g = *(Graph *)executable;
    for (u32 i = 0; i < g.count && !sticky; i++)
        if (int code = run_call(g.call[i])) { if (failed(code) == NOT_SUPPORTED) return code; }
    return 0;
}
API int hipGraphExecDestroy(void *executable) { free_graph((Graph *)executable); return sticky; }
API int hipGraphDestroy(void *graph) { free_graph((Graph *)graph); return sticky; }
