"""Each block adds its part to the result with one float atomic: the order is open, the value is not."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void mean_square(const float* x, float* out, int n, float scale) {
    __shared__ float part[8];
    float acc = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) acc += x[i] * x[i];
    for (int d = warpSize / 2; d > 0; d >>= 1) acc += __shfl_xor(acc, d);
    if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = acc;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int w = 0; w < 256 / warpSize; ++w) total += part[w];
        atomicAdd(out, total * scale);
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    out = torch.zeros((), dtype=x.dtype)
    n = x.numel()
    mean_square[min(cdiv(n, 256), 16), 256](x, out, n, 1.0 / n)
    return out
