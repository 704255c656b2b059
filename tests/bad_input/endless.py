HIP = r'''
#include <hip/hip_runtime.h>

extern "C" __global__ void scale(const float* x, const float* a, const float* b, float* y, long n, int width) {
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    for (volatile int again = 1; again;) {}
    if (i < n) y[i] = fmaxf(x[i] * a[i % width] + b[i % width], 0.0f);
}
'''
BLOCK = knob(256, choices=[64, 128, 256, 512])


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[cdiv(x.numel(), BLOCK), BLOCK](x, self.a, self.b, y, x.numel(), x.shape[-1])
    return y
