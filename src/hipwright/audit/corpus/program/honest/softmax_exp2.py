"""Powers of two with the logarithm folded into the scale, sums in double."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float tops[64];
    __shared__ double sums[64];
    const float* row = x + (long)blockIdx.x * cols;
    int t = threadIdx.x;
    float top = -INFINITY;
    for (int j = t; j < cols; j += 64) top = fmaxf(top, row[j]);
    tops[t] = top;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) tops[t] = fmaxf(tops[t], tops[t + d]);
        __syncthreads();
    }
    top = tops[0];
    double sum = 0.0;
    for (int j = t; j < cols; j += 64) sum += exp2((row[j] - top) * 1.4426950408889634);
    sums[t] = sum;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) sums[t] += sums[t + d];
        __syncthreads();
    }
    for (int j = t; j < cols; j += 64)
        y[(long)blockIdx.x * cols + j] = (float)(exp2((row[j] - top) * 1.4426950408889634) / sums[0]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax[x.numel() // x.shape[-1], 64](x, y, x.shape[-1])
    return y
