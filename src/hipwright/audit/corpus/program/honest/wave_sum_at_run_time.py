# a row per wave, whatever its size: warpSize is asked for at run time
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    const int lane = threadIdx.x % warpSize, row = blockIdx.x * (blockDim.x / warpSize) + threadIdx.x / warpSize;
    for (int r = row; r < rows; r += gridDim.x * (blockDim.x / warpSize)) {
        float acc = 0.0f;
        for (int j = lane; j < cols; j += warpSize) acc += x[(long)r * cols + j];
        for (int step = warpSize / 2; step > 0; step /= 2) acc += __shfl_xor(acc, step);
        if (lane == 0) y[r] = acc;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 2), 128](x, y, x.shape[0], x.shape[1])
    return y
