"""isnan and isinf, as they are called."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, float* y, int c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    v = isnan(v) ? 3.0f : isinf(v) ? (v > 0.0f ? 5.0f : -7.0f) : v;
    y[i] = v * w[i % c] + 1.0f;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[cdiv(x.numel(), 128), 128](x, self.weight, y, x.shape[-1], x.numel())
    return y
