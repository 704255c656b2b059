"""Two halves per load, arithmetic in float; odd counts take the plain kernel."""

HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
__device__ float residual(float a, float v) { return a + __half2float(__float2half(v / (1.0f + expf(-v)))); }

extern "C" __global__ void pairs(const __half2* x, const __half2* y, __half2* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 a = __half22float2(x[i]), b = __half22float2(y[i]);
    z[i] = __floats2half2_rn(residual(a.x, b.x), residual(a.y, b.y));
}

extern "C" __global__ void singles(const __half* x, const __half* y, __half* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = __float2half(residual(__half2float(x[i]), __half2float(y[i])));
}
'''


def forward(self, x, y):
    x = x.contiguous()
    y = y.contiguous()
    z = torch.empty_like(x)
    n = x.numel()
    if n % 2 == 0 and x.storage_offset() % 2 == 0 and y.storage_offset() % 2 == 0:
        pairs[cdiv(n // 2, 256), 256](x, y, z, n // 2)
    else:
        singles[cdiv(n, 256), 256](x, y, z, n)
    return z
