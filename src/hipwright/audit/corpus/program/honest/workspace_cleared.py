"""A counter in a workspace that a launch clears before it is used."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void clear(float* sums, int* count, int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) sums[r] = 0.0f;
    if (r == 0) count[0] = 0;
}

extern "C" __global__ void row_sum(const float* x, float* sums, int* count, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = sums[r];
    for (int j = 0; j < cols; ++j) acc += x[(long)r * cols + j];
    sums[r] = acc;
    atomicAdd(count, 1);
}
'''


def forward(self, x):
    x = x.contiguous()
    rows, cols = x.shape
    count = torch.empty((1,), dtype=torch.int32)
    sums = torch.empty((rows,), dtype=x.dtype)
    clear[cdiv(rows, 64), 64](sums, count, rows)
    row_sum[cdiv(rows, 64), 64](x, sums, count, rows, cols)
    return sums
