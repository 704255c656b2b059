"""Two outputs of one kernel; the copy is a copy."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy_sum(const float* x, float* y, float* s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) { float v = x[r * cols + j]; y[r * cols + j] = v; acc += v; }
    s[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    s = torch.empty((x.shape[0],), dtype=x.dtype)
    copy_sum[cdiv(x.shape[0], 32), 32](x, y, s, x.shape[0], x.shape[1])
    return y, s
