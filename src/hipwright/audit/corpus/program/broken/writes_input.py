# wrong: the row's sum is built up in the input
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    for (int j = 1; j < cols; ++j) x[r * cols] += x[r * cols + j];
    y[r] = x[r * cols];
}
'''


def forward(self, x):
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    assert x.is_contiguous()
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
