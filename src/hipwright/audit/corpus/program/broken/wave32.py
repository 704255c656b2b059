# wrong: a wave is taken to have 32 lanes; on wave64 half of each row's terms stay behind
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    float acc = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 64) acc += x[blockIdx.x * cols + j];
    for (int d = 16; d > 0; d >>= 1) acc += __shfl_down(acc, d);
    if (threadIdx.x == 0) y[blockIdx.x] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 64](x, y, x.shape[0], x.shape[1])
    return y
