# wrong: a fence of the block does not reach other blocks
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void mean_square(const float* x, float* parts, int* arrived, float* out, int n) {
    __shared__ float lds[128];
    __shared__ bool last;
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) acc += x[i] * x[i];
    lds[t] = acc;
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) lds[t] += lds[t + d];
        __syncthreads();
    }
    if (t == 0) {
        parts[blockIdx.x] = lds[0];
        __threadfence_block();
        last = atomicAdd(arrived, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float total = 0.0f;
        for (int b = 0; b < (int)gridDim.x; ++b) total += parts[b];
        out[0] = total / n;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    n = x.numel()
    blocks = min(cdiv(n, 128), 8)
    parts = torch.empty((blocks,), dtype=x.dtype)
    arrived = torch.zeros((1,), dtype=torch.int32)
    out = torch.empty((), dtype=x.dtype)
    mean_square[blocks, 128](x, parts, arrived, out, n)
    return out
