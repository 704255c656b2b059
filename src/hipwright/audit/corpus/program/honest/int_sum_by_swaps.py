"""A sum by compare-and-swap, tried until no other thread was in between."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const int* x, long* y, int cols) {
    long acc = 0;
    for (int j = threadIdx.x; j < cols; j += 64) acc += x[(long)blockIdx.x * cols + j];
    long* sum = y + blockIdx.x;
    unsigned long long* bits = (unsigned long long*)sum;
    unsigned long long seen = __hip_atomic_load(bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT), old;
    do {
        old = seen;
        seen = atomicCAS(bits, old, old + (unsigned long long)acc);
    } while (seen != old);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros(x.shape[:-1], dtype=torch.int64)
    row_sum[y.numel(), 64](x, y, x.shape[-1])
    return y
