/* A stand-in for libamdhip64.so: the calls that hipwright makes, with HIP's ABI, and no GPU.
 *
 * It counts every call, keeps what a launch would put into the kernel-argument segment (parameter by parameter, by the
 * layout that the test read from the code object's metadata, as the real runtime does), returns the error codes it is
 * told to, and counts live modules, streams, events, graphs and memory. The one kernel it can run, on the host, is
 * `trial`. Built by the tests; nothing here comes from AMD's sources: names and numbers are those of the documented API.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/hipwright/toolchain/sim_rocm_rt/properties.h"

#define MAX_PARAMS 64
#define SEGMENT 4096

enum { CALL_SLOTS = 64 };
static struct { const char *name; int count; int fail_code; int fail_after; } calls[CALL_SLOTS];

static struct {
    unsigned grid[3], block[3], lds;
    void *stream, *function;
    int had_extra, params, captured;
    unsigned char segment[SEGMENT];
} launch_seen;

static struct { int params; unsigned offset[MAX_PARAMS], size[MAX_PARAMS]; } layout;
static struct { long modules, streams, events, graphs, executables, blocks; } live;
static int sticky, last, device, device_total = 1, capturing, recorded_launches, known_kernels, wrong = -1;
static char kernel_names[16][128];
static int attribute_value[128];
static int function_value[16];
static char architecture[256] = "gfx942:sramecc+:xnack-";

/* ---------------------------------------------------------------- for the test */

void stub_reset(void) {
    memset(calls, 0, sizeof calls); memset(&launch_seen, 0, sizeof launch_seen); memset(&layout, 0, sizeof layout);
    memset(&live, 0, sizeof live); memset(attribute_value, 0, sizeof attribute_value);
    sticky = last = device = capturing = recorded_launches = known_kernels = 0; device_total = 1; wrong = -1;
    strcpy(architecture, "gfx942:sramecc+:xnack-");
    for (int i = 0; i < 16; i++) function_value[i] = 0;
    attribute_value[29] = 2147483647; attribute_value[30] = attribute_value[31] = 65536;
    attribute_value[56] = 1024; attribute_value[63] = 304; attribute_value[74] = 65536; attribute_value[87] = 64;
    function_value[0] = 1024; function_value[1] = 512; function_value[3] = 16; function_value[4] = 40;
}
void stub_device(int total, const char *name) { device_total = total; strncpy(architecture, name, 255); }
void stub_kernel(const char *name) { strncpy(kernel_names[known_kernels++], name, 127); }
void stub_layout(int count, const unsigned *offset, const unsigned *size) {
    layout.params = count;
    memcpy(layout.offset, offset, count * sizeof *offset); memcpy(layout.size, size, count * sizeof *size);
}
void stub_wrong(int element) { wrong = element; }
const unsigned char *stub_segment(void) { return launch_seen.segment; }
void stub_launch(unsigned *out, void **handles) { /* grid, block, lds, extra, params, captured; stream, function */
    memcpy(out, launch_seen.grid, 12); memcpy(out + 3, launch_seen.block, 12);
    out[6] = launch_seen.lds; out[7] = launch_seen.had_extra; out[8] = launch_seen.params; out[9] = launch_seen.captured;
    handles[0] = launch_seen.stream; handles[1] = launch_seen.function;
}
void stub_live(long *out) { memcpy(out, &live, sizeof live); }

static int slot(const char *name) {
    int i = 0;
    for (; i < CALL_SLOTS - 1 && calls[i].name; i++) if (!strcmp(calls[i].name, name)) return i;
    calls[i].name = name;
    return i;
}
void stub_fail(const char *name, int code, int after) { /* from its (after+1)-th call on, `name` returns `code` */
    char *kept = strdup(name);
    int i = slot(kept);
    calls[i].fail_code = code; calls[i].fail_after = calls[i].count + after;
}
int stub_calls(const char *name) { return calls[slot(strdup(name))].count; }

/* ---------------------------------------------------------------- bookkeeping of one call */

static int is_sticky(int code) { return code == 700 || code == 702 || code == 710 || code == 719; }
static int enter(const char *name) {
    int i = slot(name);
    calls[i].count++;
    int code = sticky;
    if (calls[i].fail_code && calls[i].count > calls[i].fail_after) code = calls[i].fail_code;
    if (code) last = code;
    if (is_sticky(code)) sticky = code;
    return code;
}
#define ENTER() do { int code_ = enter(__func__); if (code_) return code_; } while (0)

/* ---------------------------------------------------------------- HIP */

const char *hipGetErrorName(int code) {
    switch (code) {
    case 0: return "hipSuccess";
    case 2: return "hipErrorOutOfMemory";
    case 209: return "hipErrorNoBinaryForGpu";
    case 700: return "hipErrorIllegalAddress";
    case 702: return "hipErrorLaunchTimeOut";
    case 719: return "hipErrorLaunchFailure";
    default: return NULL; /* an older runtime than the caller's table */
    }
}
int hipGetLastError(void) { int code = sticky ? sticky : last; last = 0; return code; }
int hipPeekAtLastError(void) { return sticky ? sticky : last; }
int hipInit(unsigned flags) { ENTER(); return flags ? 1 : 0; }
int hipGetDeviceCount(int *count) { ENTER(); *count = device_total; return device_total ? 0 : 100; }
int hipSetDevice(int index) { ENTER(); device = index; return 0; }
int hipDeviceGetAttribute(int *value, int attribute, int index) {
    ENTER();
    if (index < 0 || index >= device_total || attribute < 0 || attribute >= 128) return 1;
    *value = attribute_value[attribute];
    return 0;
}

int hipGetDevicePropertiesR0600(DeviceProperties *out, int index) {
    ENTER();
    memset(out, 0, sizeof *out);
    strcpy(out->name, index ? "Stub GPU 1" : "Stub GPU 0"); strcpy(out->gcnArchName, architecture);
    out->totalGlobalMem = (size_t)192 << 30; out->warpSize = 64; out->multiProcessorCount = 304;
    out->sharedMemPerBlock = 65536; out->sharedMemPerMultiprocessor = 65537; out->sharedMemPerBlockOptin = 65538;
    out->asicRevision = 7;
    return 0;
}
size_t stub_properties_size(void) { return sizeof(DeviceProperties); }

int hipModuleLoadData(void **module, const void *image) {
    ENTER();
    const unsigned char *bytes = image;
    if (memcmp(bytes, "\x7f" "ELF", 4)) return last = 200;
    *module = malloc(1);
    live.modules++;
    return 0;
}
int hipModuleUnload(void *module) { ENTER(); free(module); live.modules--; return 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
    ENTER();
    (void)module;
    for (int i = 0; i < known_kernels; i++)
        if (!strcmp(kernel_names[i], name)) { *function = kernel_names[i]; return 0; }
    return last = 500;
}
int hipFuncGetAttribute(int *value, int attribute, void *function) {
    ENTER();
    (void)function;
    *value = function_value[attribute];
    return 0;
}

static void run_trial(void) { /* x, y, n, scale: y[i] = x[i] * scale + 1 */
    float *x, *y, scale; int n;
    memcpy(&x, launch_seen.segment, 8); memcpy(&y, launch_seen.segment + 8, 8);
    memcpy(&n, launch_seen.segment + 16, 4); memcpy(&scale, launch_seen.segment + 20, 4);
    long threads = (long)launch_seen.grid[0] * launch_seen.block[0];
    for (long i = 0; i < threads && i < n; i++) y[i] = x[i] * scale + (i == wrong ? 2.0f : 1.0f);
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **params, void **extra) {
    ENTER();
    if (!function) return last = 400;
    launch_seen.grid[0] = gx; launch_seen.grid[1] = gy; launch_seen.grid[2] = gz;
    launch_seen.block[0] = bx; launch_seen.block[1] = by; launch_seen.block[2] = bz;
    launch_seen.lds = lds; launch_seen.stream = stream; launch_seen.function = function;
    launch_seen.had_extra = extra != NULL; launch_seen.params = layout.params; launch_seen.captured = capturing;
    memset(launch_seen.segment, 0xEE, SEGMENT);
    for (int i = 0; i < layout.params; i++)
        memcpy(launch_seen.segment + layout.offset[i], params[i], layout.size[i]);
    if (capturing) recorded_launches++;
    else if (!strcmp(function, "trial") && layout.params == 4) run_trial();
    return 0;
}
int hipDeviceSynchronize(void) { ENTER(); return 0; }
int hipMalloc(void **address, size_t size) { ENTER(); *address = malloc(size); live.blocks++; return 0; }
int hipFree(void *address) { ENTER(); free(address); live.blocks--; return 0; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    ENTER();
    if (kind != 1 && kind != 2) return last = 21;
    memcpy(to, from, size);
    return 0;
}
int hipStreamCreate(void **stream) { ENTER(); *stream = malloc(1); live.streams++; return 0; }
int hipStreamDestroy(void *stream) { ENTER(); free(stream); live.streams--; return 0; }
int hipStreamSynchronize(void *stream) { ENTER(); (void)stream; return 0; }
int hipEventCreate(void **event) { ENTER(); *event = malloc(1); live.events++; return 0; }
int hipEventDestroy(void *event) { ENTER(); free(event); live.events--; return 0; }
int hipEventRecord(void *event, void *stream) { ENTER(); (void)event; (void)stream; return 0; }
int hipEventSynchronize(void *event) { ENTER(); (void)event; return 0; }
int hipEventElapsedTime(float *ms, void *start, void *end) { ENTER(); (void)start; (void)end; *ms = 0.25f; return 0; }
int hipStreamBeginCapture(void *stream, int mode) { ENTER(); (void)stream; (void)mode; capturing = 1; return 0; }
int hipStreamEndCapture(void *stream, void **graph) {
    (void)stream;
    capturing = 0;
    ENTER();
    *graph = malloc(1);
    live.graphs++;
    return 0;
}
int hipGraphInstantiate(void **executable, void *graph, void **node, char *log, size_t size) {
    ENTER();
    (void)graph; (void)node; (void)log; (void)size;
    *executable = malloc(1);
    live.executables++;
    return 0;
}
int hipGraphLaunch(void *executable, void *stream) {
    ENTER();
    (void)executable; (void)stream;
    if (recorded_launches && !strcmp(launch_seen.function, "trial")) run_trial();
    return 0;
}
int hipGraphExecDestroy(void *executable) { ENTER(); free(executable); live.executables--; return 0; }
int hipGraphDestroy(void *graph) { ENTER(); free(graph); live.graphs--; return 0; }
