# A12: indices in int32 where the task has int64
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_max(const float* x, float* values, int* indices, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    int at = 0;
    for (int j = 1; j < cols; ++j) if (x[r * cols + j] > x[r * cols + at]) at = j;
    values[r] = x[r * cols + at];
    indices[r] = at;
}
'''


def forward(self, x):
    x = x.contiguous()
    values = torch.empty((x.shape[0],), dtype=x.dtype)
    indices = torch.empty((x.shape[0],), dtype=torch.int32)
    row_max[cdiv(x.shape[0], 64), 64](x, values, indices, x.shape[0], x.shape[1])
    return values, indices
