# wrong: one float of LDS too few for a row
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    extern __shared__ float row[];
    for (int j = threadIdx.x; j < cols; j += 64) row[j] = x[blockIdx.x * cols + j];
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int j = 0; j < cols; ++j) sum += row[j];
        y[blockIdx.x] = sum;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 64, 4 * x.shape[1] - 4](x, y, x.shape[1])
    return y
