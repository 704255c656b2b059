"""Tests addresses: float4 where all rows are aligned, else one element at a time, with the same result."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, int c) {
    const float* in = x + (long)blockIdx.x * c;
    float* out = y + (long)blockIdx.x * c;
    bool aligned = (((size_t)in | (size_t)out | (size_t)g | (size_t)b) & 15) == 0;
    int quads = aligned ? c / 4 : 0;
    for (int i = threadIdx.x; i < quads; i += blockDim.x) {
        float4 v = reinterpret_cast<const float4*>(in)[i], s = reinterpret_cast<const float4*>(g)[i];
        float4 o = reinterpret_cast<const float4*>(b)[i];
        v.x = v.x * s.x + o.x; v.y = v.y * s.y + o.y; v.z = v.z * s.z + o.z; v.w = v.w * s.w + o.w;
        v.x = v.x < 0.0f ? 0.0f : v.x; v.y = v.y < 0.0f ? 0.0f : v.y;
        v.z = v.z < 0.0f ? 0.0f : v.z; v.w = v.w < 0.0f ? 0.0f : v.w;
        reinterpret_cast<float4*>(out)[i] = v;
    }
    for (int j = 4 * quads + threadIdx.x; j < c; j += blockDim.x) {
        float v = in[j] * g[j] + b[j];
        out[j] = v < 0.0f ? 0.0f : v;
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    c = x.shape[-1]
    scale_bias[x.numel() // c, 32](x, self.gamma, self.bias, y, c)
    return y
