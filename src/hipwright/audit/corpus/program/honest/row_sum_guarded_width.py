"""At most 512 columns, as the guard says; it declines others."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[256];
    float acc = 0.0f;
    for (int k = 0; k < 2; ++k) {
        int j = threadIdx.x + 256 * k;
        if (j < cols) acc += x[(long)blockIdx.x * cols + j];
    }
    part[threadIdx.x] = acc;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    assert x.shape[1] <= 512, "a block sums at most 512 columns"
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 256](x, y, x.shape[1])
    return y
