"""The row is scaled in place in a copy of the input, which is the program's own."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(float* own, float* y, int cols) {
    float* row = own + (long)blockIdx.x * cols;
    float acc = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 64) row[j] = row[j] * 2.0f;
    __syncthreads();
    for (int j = threadIdx.x; j < cols; j += 64) acc += row[j];
    __shared__ float part[64];
    part[threadIdx.x] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0] * 0.5f;
}
'''


def forward(self, x):
    own = x.contiguous().clone()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[y.numel(), 64](own, y, x.shape[-1])
    return y
