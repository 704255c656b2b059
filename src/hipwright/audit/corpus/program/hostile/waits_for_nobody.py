# E8: waits for a flag that no block sets
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int* flag, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    while (atomicAdd(flag, 0) == 0) { }
    if (r < rows) y[r] = x[r * cols];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    flag = torch.zeros((1,), dtype=torch.int32)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, flag, x.shape[0], x.shape[1])
    return y
