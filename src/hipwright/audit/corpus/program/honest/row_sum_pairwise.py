"""One thread per row adds in pairs: partial sums of 16 elements, then a sum of those."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (long)r * cols;
    float total = 0.0f;
    for (int start = 0; start < cols; start += 16) {
        float part[16];
        for (int k = 0; k < 16; ++k) part[k] = start + k < cols ? row[start + k] : 0.0f;
        for (int d = 8; d > 0; d >>= 1)
            for (int k = 0; k < d; ++k) part[k] += part[k + d];
        total += part[0];
    }
    y[r] = total;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[cdiv(y.numel(), 64), 64](x, y, y.numel(), x.shape[-1])
    return y
