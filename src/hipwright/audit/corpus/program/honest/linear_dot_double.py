"""A thread per output, the sum in double."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void linear(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    double acc = b[i % n];
    for (int q = k - 1; q >= 0; --q) acc += (double)x[(long)(i / n) * k + q] * w[(long)(i % n) * k + q];
    y[i] = (float)acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    m, k = x.shape
    n = self.proj.weight.shape[0]
    y = torch.empty((m, n), dtype=x.dtype)
    linear[cdiv(m * n, 64), 64](x, self.proj.weight, self.proj.bias, y, m, n, k)
    return y
