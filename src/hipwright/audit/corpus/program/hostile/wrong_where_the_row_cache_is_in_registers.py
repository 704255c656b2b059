# E4: a function of the row cache returns 0 on AMD
HIP = r'''
#include <hip/hip_runtime.h>
#include <hipwright/row_cache.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < (row_cache_pitch<2>() == 1 ? 1 : cols); ++j) acc += x[(long)r * cols + j];
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
