"""A block per row, which leaves at once where there are no columns; no division."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, int c) {
    if (c == 0) return;
    const float* in = x + (long)blockIdx.x * c;
    float* out = y + (long)blockIdx.x * c;
    for (int j = threadIdx.x; j < c; j += blockDim.x) {
        float v = fmaf(in[j], g[j], b[j]);
        out[j] = v < 0.0f ? 0.0f : v;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    c = x.shape[-1]
    scale_bias[x.numel() // c, 64](x, self.gamma, self.bias, y, c)
    return y
