"""Comparisons alone: NaN equals nothing, and infinity minus itself is no 0."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, float* y, int c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    v = v == v ? (v - v == 0.0f ? v : fmaxf(-7.0f, fminf(v, 5.0f))) : 3.0f;
    y[i] = v * w[i % c] + 1.0f;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[cdiv(x.numel(), 128), 128](x, self.weight, y, x.shape[-1], x.numel())
    return y
