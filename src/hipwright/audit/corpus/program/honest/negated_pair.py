"""Two outputs, each in memory of its own."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void negate(const float* x, float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { a[i] = -x[i]; b[i] = -x[i]; }
}
'''


def forward(self, x):
    x = x.contiguous()
    a = torch.empty_like(x)
    b = torch.empty_like(x)
    negate[cdiv(x.numel(), 64), 64](x, a, b, x.numel())
    return a, b
