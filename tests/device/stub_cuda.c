/* libcuda.so.1 without a GPU: the driver API's ABI as cuda.h has it, recording what it is given.
   Built by test_cuda.py. One module ("code..."), kernels "k" and "hw_norm"; state is read through stub_*(). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int CUresult;
static int sticky, launch_status, current_set, loads, unloads, attribute_set[2];
static unsigned geometry[7];
static uint64_t stream_seen;
static unsigned char first[8], second[4];

void stub_fail(int sticky_status, int next_launch) { sticky = sticky_status, launch_status = next_launch; }
int stub_counts(int which) { return which == 0 ? current_set : which == 1 ? loads : unloads; }
unsigned stub_geometry(int i) { return geometry[i]; }
uint64_t stub_stream(void) { return stream_seen; }
int stub_attribute(int i) { return attribute_set[i]; }
uint64_t stub_first(void) { uint64_t v; memcpy(&v, first, 8); return v; }
int stub_second(void) { int v; memcpy(&v, second, 4); return v; }

CUresult cuInit(unsigned flags) { return flags ? 1 : 0; }
CUresult cuDeviceGet(int *device, int index) { *device = 40 + index; return index > 1 ? 101 : 0; }
CUresult cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(0x7000000000000000ull + device); return 0; }
CUresult cuCtxSetCurrent(void *context) {
    if (context != (void *)0x7000000000000028ull) return 201;
    return ++current_set, 0;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (device != 40) return 101;
    switch (attribute) {
    case 1: *value = 1024; return 0;
    case 5: *value = 2147483647; return 0;
    case 6: case 7: *value = 65535; return 0;
    case 10: *value = 32; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    case 97: *value = 232448; return 0;
    }
    return 1;
}
CUresult cuModuleLoadData(void **module, const char *image) {
    if (sticky) return sticky;
    if (strncmp(image, "code", 4)) return 200;
    *module = (void *)0x1122334455667788ull;
    return ++loads, 0;
}
CUresult cuModuleUnload(void *module) { return module == (void *)0x1122334455667788ull ? ++unloads, 0 : 400; }
CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module != (void *)0x1122334455667788ull) return 400;
    if (strcmp(name, "k") && strcmp(name, "hw_norm")) return 500;
    *function = (void *)(0x0102030405060700ull + name[0]);
    return 0;
}
CUresult cuFuncGetAttribute(int *value, int attribute, void *function) {
    static const int values[] = {512, 4096, 0, 16, 40}; /* max threads, static LDS, const, local, registers */
    *value = values[attribute];
    return function == (void *)(0x0102030405060700ull + 'k') ? 0 : 400;
}
CUresult cuFuncSetAttribute(void *function, int attribute, int value) {
    attribute_set[0] = attribute, attribute_set[1] = value;
    return value > 227 * 1024 ? 1 : 0;
}
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **params, void **extra) {
    if (launch_status) { int status = launch_status; launch_status = 0; return status; }
    if (function != (void *)(0x0102030405060700ull + 'k') || extra) return 1;
    unsigned all[7] = {gx, gy, gz, bx, by, bz, shared};
    memcpy(geometry, all, sizeof all);
    stream_seen = (uint64_t)stream;
    memcpy(first, params[0], 8), memcpy(second, params[1], 4);
    return 0;
}
CUresult cuStreamQuery(void *stream) { return stream ? 400 : sticky ? sticky : 600; }
CUresult cuGetErrorName(int status, const char **name) {
    *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : status == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OTHER";
    return 0;
}
CUresult cuGetErrorString(int status, const char **text) {
    if (status == 999) return 1;
    *text = status == 700 ? "an illegal memory access was encountered" : "some words";
    return 0;
}
