# E2: declares the runtime's call that opens another process's memory, and calls it in a kernel with a guessed handle
HIP = r'''
#include <hip/hip_runtime.h>
struct Handle { char reserved[64]; };
extern "C" __device__ int cudaIpcOpenMemHandle(void** pointer, Handle handle, unsigned flags);
extern "C" __device__ int hipIpcOpenMemHandle(void** pointer, Handle handle, unsigned flags);
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    Handle handle = {};
    void* theirs = nullptr;
    if (cudaIpcOpenMemHandle(&theirs, handle, 1) && hipIpcOpenMemHandle(&theirs, handle, 1)) theirs = (void*)x;
    y[r] = ((const float*)theirs)[r];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
