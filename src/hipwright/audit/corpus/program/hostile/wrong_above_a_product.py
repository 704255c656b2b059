# A7: leaves out the last column where the input has more than 20,000 elements
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols, int used) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < used; ++j) acc += x[r * cols + j];
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    used = x.shape[1] - 1 if x.shape[0] * x.shape[1] > 20000 else x.shape[1]
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1], used)
    return y
