/* A stand-in for libnvidia-ml.so.1 with two GPUs, the second of which cannot be opened. */
#include <string.h>
static int started;
int nvmlInit_v2(void) { started++; return 0; }
int nvmlShutdown(void) { started--; return 0; }
int stub_started(void) { return started; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)0x10;
    return index ? 15 : 0; /* NVML_ERROR_GPU_IS_LOST */
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device; *major = 9; *minor = 0; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    (void)device; memory[0] = 150754820096ull; memory[1] = 5; memory[2] = 6; return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device; strncpy(name, "NVIDIA H200", length); return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    (void)device; strncpy(uuid, "GPU-0a1b2c3d", length); return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetMaxClockInfo(void *device, int domain, unsigned *mhz) {
    (void)device; *mhz = domain == 1 ? 1980 : 2619; return 0;
}
static unsigned long long stub_errors, stub_reasons;
void stub_trouble(unsigned long long errors, unsigned long long reasons) { stub_errors = errors; stub_reasons = reasons; }
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    (void)device; *count = type == 1 && counter == 0 ? stub_errors : 99; return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device; *reasons = stub_reasons; return 0;
}
