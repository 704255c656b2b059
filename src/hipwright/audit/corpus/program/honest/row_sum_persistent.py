"""Few blocks take the rows in turn; LDS is used again after a barrier."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    __shared__ float part[64];
    int t = threadIdx.x;
    for (int r = blockIdx.x; r < rows; r += gridDim.x) {
        float acc = 0.0f;
        for (int j = t; j < cols; j += 64) acc += x[(long)r * cols + j];
        part[t] = acc;
        __syncthreads();
        for (int d = 32; d > 0; d >>= 1) {
            if (t < d) part[t] += part[t + d];
            __syncthreads();
        }
        if (t == 0) y[r] = part[0];
        __syncthreads();
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[min(x.shape[0], 5), 64](x, y, x.shape[0], x.shape[1])
    return y
