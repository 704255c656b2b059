"""Sums of blocks go to workspace, of which exactly what was written is read."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void parts(const float* x, float* part, int n) {
    __shared__ float lds[64];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) acc += x[i] * x[i];
    lds[t] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) lds[t] += lds[t + d];
        __syncthreads();
    }
    if (t == 0) part[blockIdx.x] = lds[0];
}

extern "C" __global__ void whole(const float* part, float* out, int blocks, int n) {
    double total = 0.0;
    for (int b = blocks - 1; b >= 0; --b) total += part[b];
    out[0] = (float)(total / n);
}
'''


def forward(self, x):
    x = x.contiguous()
    n = x.numel()
    blocks = min(cdiv(n, 64), 12)
    part = torch.empty((64,), dtype=x.dtype)
    out = torch.empty((), dtype=x.dtype)
    parts[blocks, 64](x, part, n)
    whole[1, 1](part, out, blocks, n)
    return out
