# wrong: gamma and bias are left out, which their defaults 1 and 0 would hide
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu[cdiv(x.numel(), 256), 256](x, y, x.numel())
    return y
