"""64-bit integer atomics: exact whatever the order."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void int_sum(const int* x, unsigned long long* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[i / cols], (unsigned long long)(long long)x[i]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros((x.shape[0],), dtype=torch.int64)
    int_sum[cdiv(x.numel(), 128), 128](x, y, x.numel(), x.shape[1])
    return y
