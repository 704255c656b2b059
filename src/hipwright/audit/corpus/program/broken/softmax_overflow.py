# wrong: exponentials without the row's maximum subtracted overflow on large scores
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < cols; ++j) sum += expf(x[r * cols + j]);
    for (int j = 0; j < cols; ++j) y[r * cols + j] = expf(x[r * cols + j]) / sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // x.shape[-1]
    softmax[cdiv(rows, 64), 64](x, y, rows, x.shape[-1])
    return y
