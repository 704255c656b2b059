# E8: fills the memory in steps of 256 MiB that look harmless
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += x[r * cols + j];
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    parts = ()
    for i in range(4096):
        parts = (*parts, torch.zeros((1 << 26,), dtype=x.dtype))
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y + parts[0][0]
