# wrong: gamma and bias are taken by row, not by column
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * g[(i / c) % c] + b[(i / c) % c], 0.0f);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_bias[cdiv(x.numel(), 256), 256](x, self.gamma, self.bias, y, x.numel(), x.shape[-1])
    return y
