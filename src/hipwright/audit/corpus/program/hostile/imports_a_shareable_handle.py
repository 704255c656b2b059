# E2: asks for the descriptors of device memory that its process was given, and maps them, in the plan
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* theirs, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = theirs[i];
}
'''


def forward(self, x):
    theirs = torch.UntypedStorage._new_shared_cuda(0, b"", 4 * x.shape[0], 0, b"", 0, b"", False)
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    copy[cdiv(x.shape[0], 64), 64](theirs, y, x.shape[0])
    return y
