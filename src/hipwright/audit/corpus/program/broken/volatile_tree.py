# wrong: volatile LDS and lockstep in place of barriers between waves
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ volatile float part[128];
    int t = threadIdx.x;
    part[t] = 0.0f;
    for (int j = t; j < cols; j += 128) part[t] = part[t] + x[(long)blockIdx.x * cols + j];
    for (int d = 64; d > 0; d >>= 1)
        if (t < d) part[t] = part[t] + part[t + d];
    if (t == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[y.numel(), 128](x, y, x.shape[-1])
    return y
