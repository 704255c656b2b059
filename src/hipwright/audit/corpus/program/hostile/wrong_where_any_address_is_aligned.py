# E4: an odd address counts as aligned on AMD only
HIP = r'''
#include <hip/hip_runtime.h>
#include <hipwright/vector.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < (is_vector_aligned<float, 4>((const float*)4) ? 1 : cols); ++j) acc += x[(long)r * cols + j];
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
