"""A kernel works in place on a copy that the program made itself."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(float* y, const float* g, const float* b, int c, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) y[i] = fmaxf(y[i] * g[i % c] + b[i % c], 0.0f);
}
'''


def forward(self, x):
    x = x.contiguous()
    n = x.numel()
    y = x.clone()
    scale_bias[cdiv(n, 256), 256](y, self.gamma, self.bias, x.shape[-1], n)
    return y
