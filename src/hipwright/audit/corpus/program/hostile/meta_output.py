# A12: a tensor without data on the meta device
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
    return torch.empty((x.shape[0],), dtype=x.dtype, device="meta")
