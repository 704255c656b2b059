"""Several blocks share a row and add their sums with a float atomic; the row begins at zero."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[64];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = blockIdx.y * 64 + t; j < cols; j += gridDim.y * 64) acc += x[(long)blockIdx.x * cols + j];
    part[t] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) atomicAdd(&y[blockIdx.x], part[0]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros((x.shape[0],), dtype=x.dtype)
    row_sum[(x.shape[0], 3), 64](x, y, x.shape[1])
    return y
