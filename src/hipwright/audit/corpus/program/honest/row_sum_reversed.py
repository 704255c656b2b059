"""The last element first, in double."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double total = 0.0;
    for (int j = cols - 1; j >= 0; --j) total += x[(long)r * cols + j];
    y[r] = (float)total;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[cdiv(y.numel(), 64), 64](x, y, y.numel(), x.shape[-1])
    return y
