# wrong: NaN below zero is replaced by zero
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void log1(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] >= 0.0f ? logf(x[i]) + 1.0f : 0.0f;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    log1[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
