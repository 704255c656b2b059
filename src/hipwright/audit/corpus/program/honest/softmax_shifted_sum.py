"""The maximum, the exponentials into the output, and a division of what the same thread wrote."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* in = x + (long)r * cols;
    float* out = y + (long)r * cols;
    float top = -INFINITY, sum = 0.0f;
    for (int j = cols - 1; j >= 0; --j) top = fmaxf(top, in[j]);
    for (int j = cols - 1; j >= 0; --j) sum += out[j] = expf(in[j] - top);
    float scale = 1.0f / sum;
    for (int j = 0; j < cols; ++j) out[j] *= scale;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows = x.numel() // x.shape[-1]
    softmax[cdiv(rows, 32), 32](x, y, rows, x.shape[-1])
    return y
