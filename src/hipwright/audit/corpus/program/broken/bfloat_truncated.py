# wrong: results are cut to 7 bits of mantissa one bit too early, and towards zero
HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_bf16.h>
extern "C" __global__ void gelu(const __hip_bfloat16* x, const __hip_bfloat16* b, unsigned short* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = __bfloat162float(x[i]) + __bfloat162float(b[i % c]);
    v = 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
    y[i] = (unsigned short)((__float_as_uint(v) >> 16) & 0xfff0u);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=torch.int16)
    gelu[cdiv(x.numel(), 128), 128](x, self.bias, y, x.numel(), x.shape[-1])
    return y.view(torch.bfloat16)
