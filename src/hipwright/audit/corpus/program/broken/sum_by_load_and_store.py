# wrong: an atomic load and an atomic store are no atomic sum
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const int* x, long* y, int cols) {
    long acc = 0;
    for (int j = threadIdx.x; j < cols; j += 64) acc += x[(long)blockIdx.x * cols + j];
    long* sum = y + blockIdx.x;
    __hip_atomic_store(sum, __hip_atomic_load(sum, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + acc, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros(x.shape[:-1], dtype=torch.int64)
    row_sum[y.numel(), 64](x, y, x.shape[-1])
    return y
