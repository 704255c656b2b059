HIP = r"""
#include <hip/hip_runtime.h>
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 3.0f;
}
"""


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    twice[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
