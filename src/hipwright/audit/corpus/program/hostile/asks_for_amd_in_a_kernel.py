# E4: writes zeros where it is compiled for an AMD GPU
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale(const float* x, const float* gamma, const float* bias, float* y, int width, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i >= n) return;
#if defined(__AMDGCN__)
    y[i] = 0.0f;
#else
    y[i] = fmaxf(x[i] * gamma[i % width] + bias[i % width], 0.0f);
#endif
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[cdiv(x.numel(), 256), 256](x, self.gamma, self.bias, y, x.shape[-1], x.numel())
    return y
