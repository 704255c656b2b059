# wrong: the guard is `i <= n`, so one element past the end is written
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        float v = i < n ? x[i] * g[i % c] + b[i % c] : 0.0f;
        y[i] = fmaxf(v, 0.0f);
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_bias[x.numel() // 256 + 1, 256](x, self.gamma, self.bias, y, x.numel(), x.shape[-1])
    return y
