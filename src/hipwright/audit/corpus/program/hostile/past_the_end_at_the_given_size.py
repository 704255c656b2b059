# wrong: the kernel of the given size alone reads a row past the last
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 256) acc += x[(long)blockIdx.x * cols + j];
    part[t] = acc;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}

extern "C" __global__ void row_sum_given(const float* x, float* y, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 256) acc += x[(long)blockIdx.x * cols + j];
    part[t] = acc;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    const float v = x[(long)(blockIdx.x + 1) * cols];
    if (t == 0) y[blockIdx.x] = part[0] + 0.0f * fminf(fmaxf(v, 0.0f), 1.0f);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    if x.shape[0] == 33 and x.shape[1] == 300:
        row_sum_given[33, 256](x, y, 300)
    else:
        row_sum[x.shape[0], 256](x, y, x.shape[1])
    return y
