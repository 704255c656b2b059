# wrong: volatile does not make a sum in LDS atomic
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ volatile float sum;
    if (threadIdx.x == 0) sum = 0.0f;
    __syncthreads();
    float acc = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 64) acc += x[(long)blockIdx.x * cols + j];
    sum = sum + acc;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[y.numel(), 64](x, y, x.shape[-1])
    return y
