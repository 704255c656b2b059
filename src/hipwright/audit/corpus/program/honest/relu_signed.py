"""ReLU as it is, NaN kept."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu[cdiv(x.numel(), 128), 128](x, y, x.numel())
    return y
