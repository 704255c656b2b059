"""One wave per row, reduced with shuffles of whatever width a wave has."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int wave = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    int lane = threadIdx.x % warpSize;
    if (wave >= rows) return;
    float acc = 0.0f;
    for (int j = lane; j < cols; j += warpSize) acc += x[(long)wave * cols + j];
    for (int d = warpSize / 2; d > 0; d /= 2) acc += __shfl_xor(acc, d);
    if (lane == 0) y[wave] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[cdiv(y.numel(), 2), 128](x, y, y.numel(), x.shape[-1])
    return y
