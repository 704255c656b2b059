# wrong: 64 floats of LDS for 128 threads
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[64];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 128) acc += x[blockIdx.x * cols + j];
    part[t] = acc;
    __syncthreads();
    if (t == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 128; ++i) sum += part[i];
        y[blockIdx.x] = sum;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 128](x, y, x.shape[1])
    return y
