# wrong: only half of the block reaches the barrier
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[128];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 128) acc += x[blockIdx.x * cols + j];
    part[t] = acc;
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) {
            __syncthreads();
            part[t] += part[t + d];
        }
    }
    __syncthreads();
    if (t == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 128](x, y, x.shape[1])
    return y
