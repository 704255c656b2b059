"""Packs of four are copied by memcpy, which promises no alignment."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    float* out = y + (long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols / 4; i += 64) {
        float v[4];
        __builtin_memcpy(v, row + 4 * i, 16);
        for (int k = 0; k < 4; ++k) v[k] = v[k] * w[4 * i + k] + b[4 * i + k];
        __builtin_memcpy(out + 4 * i, v, 16);
    }
    for (int i = cols / 4 * 4 + threadIdx.x; i < cols; i += 64) out[i] = row[i] * w[i] + b[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[x.numel() // x.shape[-1], 64](x, self.w, self.b, y, x.shape[-1])
    return y
