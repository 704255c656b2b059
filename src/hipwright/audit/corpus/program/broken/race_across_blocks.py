# wrong: blocks add to one number without an atomic
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void mean_square(const float* x, float* out, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] * x[i] * scale : 0.0f;
    for (int d = warpSize / 2; d > 0; d >>= 1) v += __shfl_down(v, d);
    if (threadIdx.x % warpSize == 0) out[0] += v;
}
'''


def forward(self, x):
    x = x.contiguous()
    out = torch.zeros((), dtype=x.dtype)
    n = x.numel()
    mean_square[cdiv(n, 128), 128](x, out, n, 1.0 / n)
    return out
