"""Integer atomics on the result itself."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void count(const long* x, unsigned long long* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[x[i]], 1ull);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros((16,), dtype=torch.int64)
    count[cdiv(x.numel(), 64), 64](x, y, x.numel())
    return y
