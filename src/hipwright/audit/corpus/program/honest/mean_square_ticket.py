"""Blocks draw a ticket by an atomic; the last one, after fences, adds all parts in double."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void mean_square(const float* x, float* parts, int* tickets, float* out, int n) {
    __shared__ float lds[64];
    __shared__ int last;
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) acc = fmaf(x[i], x[i], acc);
    lds[t] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) lds[t] += lds[t + d];
        __syncthreads();
    }
    if (t == 0) {
        parts[blockIdx.x] = lds[0];
        __threadfence();
        last = atomicAdd(tickets, 1) == (int)gridDim.x - 1;
        if (last) __threadfence();
    }
    __syncthreads();
    if (!last || t > 0) return;
    double total = 0.0;
    for (int b = 0; b < (int)gridDim.x; ++b) total += parts[b];
    out[0] = (float)(total / n);
    tickets[0] = 0;
}
'''


def forward(self, x):
    x = x.contiguous()
    n = x.numel()
    blocks = min(cdiv(n, 64), 6)
    parts = torch.empty((blocks,), dtype=x.dtype)
    tickets = torch.zeros((1,), dtype=torch.int32)
    out = torch.empty((), dtype=x.dtype)
    mean_square[blocks, 64](x, parts, tickets, out, n)
    return out
