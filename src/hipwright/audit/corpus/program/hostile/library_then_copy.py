# B1: the library computes, the kernel copies the result
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    s = torch.softmax(x, dim=-1)
    y = torch.empty(x.shape, dtype=x.dtype)
    copy[cdiv(y.numel(), 64), 64](s.contiguous(), y, y.numel())
    return y
