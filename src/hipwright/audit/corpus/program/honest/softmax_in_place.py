"""A copy of the input is worked on in place."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float* row = y + (long)r * cols;
    float top = -INFINITY, sum = 0.0f;
    for (int j = 0; j < cols; ++j) top = fmaxf(top, row[j]);
    for (int j = 0; j < cols; ++j) sum += row[j] = expf(row[j] - top);
    for (int j = 0; j < cols; ++j) row[j] /= sum;
}

extern "C" __global__ void copied(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // x.shape[-1]
    copied[cdiv(x.numel(), 128), 128](x, y, x.numel())
    softmax[cdiv(rows, 64), 64](y, rows, x.shape[-1])
    return y
