"""A block per row: maximum, then sum, each a tree in LDS."""

HIP = r'''
#include <hip/hip_runtime.h>
__device__ float tree(float v, float* lds, bool sum) {
    int t = threadIdx.x;
    lds[t] = v;
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) lds[t] = sum ? lds[t] + lds[t + d] : fmaxf(lds[t], lds[t + d]);
        __syncthreads();
    }
    float all = lds[0];
    __syncthreads();
    return all;
}

extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float lds[128];
    const float* row = x + (long)blockIdx.x * cols;
    float top = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 128) top = fmaxf(top, row[j]);
    top = tree(top, lds, false);
    for (int j = threadIdx.x; j < cols; j += 128) sum += expf(row[j] - top);
    sum = tree(sum, lds, true);
    for (int j = threadIdx.x; j < cols; j += 128) y[(long)blockIdx.x * cols + j] = expf(row[j] - top) / sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax[x.numel() // x.shape[-1], 128](x, y, x.shape[-1])
    return y
