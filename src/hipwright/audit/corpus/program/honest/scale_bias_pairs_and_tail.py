"""Two elements a thread and one left over at odd widths, in one kernel."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, int n, int c) {
    int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    y[i] = fmaxf(fmaf(x[i], g[i % c], b[i % c]), 0.0f);
    if (i + 1 < n) y[i + 1] = fmaxf(fmaf(x[i + 1], g[(i + 1) % c], b[(i + 1) % c]), 0.0f);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    scale_bias[cdiv(cdiv(n, 2), 128), 128](x, self.gamma, self.bias, y, n, x.shape[-1])
    return y
