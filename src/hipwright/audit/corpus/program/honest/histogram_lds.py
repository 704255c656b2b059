"""A histogram per block in LDS, joined by integer atomics."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void count(const long* x, unsigned long long* y, int n) {
    __shared__ unsigned int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&y[threadIdx.x], (unsigned long long)bins[threadIdx.x]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros((16,), dtype=torch.int64)
    count[min(cdiv(x.numel(), 128), 8), 128](x, y, x.numel())
    return y
