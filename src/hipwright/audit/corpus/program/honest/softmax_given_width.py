"""A path for the width at hand beside the general one; both subtract the maximum."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols, int safe) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (long)r * cols;
    float top = 0.0f, sum = 0.0f;
    if (safe) {
        top = row[0];
        for (int j = 1; j < cols; ++j) top = fmaxf(top, row[j]);
    }
    for (int j = 0; j < cols; ++j) sum += expf(row[j] - top);
    for (int j = 0; j < cols; ++j) y[(long)r * cols + j] = expf(row[j] - top) / sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // x.shape[-1]
    if x.shape[-1] == 640:
        softmax[cdiv(rows, 32), 32](x, y, rows, 640, 1)
        return y
    softmax[cdiv(rows, 64), 64](x, y, rows, x.shape[-1], 1)
    return y
