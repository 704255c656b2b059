# wrong: the last column of every row is never written
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float top = x[r * cols], sum = 0.0f;
    for (int j = 1; j < cols; ++j) top = fmaxf(top, x[r * cols + j]);
    for (int j = 0; j < cols; ++j) sum += expf(x[r * cols + j] - top);
    for (int j = 0; j < cols - 1; ++j) y[r * cols + j] = expf(x[r * cols + j] - top) / sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // x.shape[-1]
    softmax[cdiv(rows, 64), 64](x, y, rows, x.shape[-1])
    return y
