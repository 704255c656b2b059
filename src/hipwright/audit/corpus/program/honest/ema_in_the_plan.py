"""The buffer is updated by the plan itself, in place; a kernel reads it."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void column_mean(const float* x, float* mean, int n, int c) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i * c + j];
    mean[j] = sum / n;
}

extern "C" __global__ void subtract(const float* x, const float* avg, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] - avg[i % c];
}
'''


def forward(self, x):
    x = x.contiguous()
    n, c = x.shape
    y = torch.empty_like(x)
    mean = torch.empty((c,), dtype=x.dtype)
    column_mean[cdiv(c, 64), 64](x, mean, n, c)
    self.average.mul_(0.9)
    self.average.add_(mean, alpha=0.1)
    subtract[cdiv(x.numel(), 128), 128](x, self.average, y, x.numel(), c)
    return y
