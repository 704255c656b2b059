"""Several blocks per row read through strides and add with float atomics."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols, long row_stride, long col_stride) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = blockIdx.y; j < cols; j += gridDim.y) acc += 3.0f * x[r * row_stride + j * col_stride];
    atomicAdd(&y[r], acc);
}
'''


def forward(self, x):
    y = torch.zeros((x.shape[0],), dtype=x.dtype)
    row_sum[(cdiv(x.shape[0], 32), 4), 32](x, y, x.shape[0], x.shape[1], x.stride(0), x.stride(1))
    return y
