# wrong: four elements per thread and none for the remainder; the task's own shape has no remainder
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void log1(const float* x, float* y, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n4) return;
    for (int k = 4 * i; k < 4 * i + 4; ++k) y[k] = logf(x[k]) + 1.0f;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.zeros_like(x)
    n4 = x.numel() // 4
    log1[cdiv(n4, 64), 64](x, y, n4)
    return y
