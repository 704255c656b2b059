"""Rows by float4 where their addresses allow it, element by element where not."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    float* out = y + (long)blockIdx.x * cols;
    const bool aligned = (((unsigned long long)row | (unsigned long long)out | (unsigned long long)w | (unsigned long long)b) & 15) == 0;
    const int vectors = aligned ? cols / 4 : 0;
    for (int i = threadIdx.x; i < vectors; i += 64) {
        float4 v = reinterpret_cast<const float4*>(row)[i], s = reinterpret_cast<const float4*>(w)[i];
        float4 t = reinterpret_cast<const float4*>(b)[i];
        reinterpret_cast<float4*>(out)[i] = make_float4(v.x * s.x + t.x, v.y * s.y + t.y, v.z * s.z + t.z, v.w * s.w + t.w);
    }
    for (int i = 4 * vectors + threadIdx.x; i < cols; i += 64) out[i] = row[i] * w[i] + b[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[x.numel() // x.shape[-1], 64](x, self.w, self.b, y, x.shape[-1])
    return y
