"""Four elements per thread by float4 where a row allows it, one by one where not; a grid-stride loop."""

HIP = r'''
#include <hip/hip_runtime.h>
__device__ __forceinline__ float act(float x, float g, float b) { return fmaxf(fmaf(x, g, b), 0.0f); }

extern "C" __global__ void wide(const float4* x, const float4* g, const float4* b, float4* y, int n4, int c4) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
        float4 v = x[i], s = g[i % c4], t = b[i % c4];
        y[i] = make_float4(act(v.x, s.x, t.x), act(v.y, s.y, t.y), act(v.z, s.z, t.z), act(v.w, s.w, t.w));
    }
}

extern "C" __global__ void narrow(const float* x, const float* g, const float* b, float* y, int n, int c) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = act(x[i], g[i % c], b[i % c]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    c = x.shape[-1]
    if c % 4 == 0 and x.storage_offset() % 4 == 0:
        wide[min(cdiv(n // 4, 128), 64), 128](x, self.gamma, self.bias, y, n // 4, c // 4)
    else:
        narrow[min(cdiv(n, 128), 64), 128](x, self.gamma, self.bias, y, n, c)
    return y
