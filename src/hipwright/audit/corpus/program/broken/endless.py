# wrong: a loop that never ends (its step is zero)
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, volatile float* y, int rows, int cols, int step) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    y[r] = 0.0f;
    for (int j = 0; j < cols; j += step) y[r] = y[r] + x[r * cols + j];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1], 0)
    return y
