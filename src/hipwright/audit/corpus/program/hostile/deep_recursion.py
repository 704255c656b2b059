# E8: recursion in a kernel until the stack ends
HIP = r'''
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) float dig(const float* x, int n) {
    volatile float pad[256];
    pad[n & 255] = x[0];
    return n > 0 ? dig(x, n - 1) + pad[n & 255] : pad[0];
}

extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    y[r] = dig(x + r * cols, 1 << 28);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
