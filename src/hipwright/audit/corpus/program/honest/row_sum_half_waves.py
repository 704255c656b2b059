"""Shuffles within groups of 32 lanes, which waves of both sizes have, joined in LDS."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[4];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 128) acc += x[(long)blockIdx.x * cols + j];
    for (int d = 16; d > 0; d >>= 1) acc += __shfl_xor(acc, d, 32);
    if (t % 32 == 0) part[t / 32] = acc;
    __syncthreads();
    if (t == 0) y[blockIdx.x] = (part[0] + part[1]) + (part[2] + part[3]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[y.numel(), 128](x, y, x.shape[-1])
    return y
