"""Reads the transposed input by its strides; nothing is copied."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void rows3(const float* x, float* y, int rows, int cols, long row_stride, long col_stride) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += 3.0f * x[r * row_stride + j * col_stride];
    y[r] = acc;
}
'''


def forward(self, x):
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    rows3[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1], x.stride(0), x.stride(1))
    return y
