"""A block per row with a tree in LDS, all of it double."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void dot(const double* x, const double* w, double* y, int cols) {
    __shared__ double part[32];
    int t = threadIdx.x;
    double acc = 0.0;
    for (int j = t; j < cols; j += 32) acc = fma(x[(long)blockIdx.x * cols + j], w[j], acc);
    part[t] = acc;
    __syncthreads();
    for (int d = 16; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    dot[x.shape[0], 32](x, self.weight, y, x.shape[1])
    return y
