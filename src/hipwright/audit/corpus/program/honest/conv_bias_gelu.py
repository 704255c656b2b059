"""The library convolves, the kernel adds the bias and applies GELU in place on the program's own tensor."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void bias_gelu(float* y, const float* b, int n, int plane, int channels) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = y[i] + b[i / plane % channels];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
}
'''


def forward(self, x):
    y = torch.nn.functional.conv2d(x, self.conv.weight, None, self.conv.stride, self.conv.padding).contiguous()
    n = y.numel()
    bias_gelu[cdiv(n, 256), 256](y, self.conv.bias, n, y.shape[2] * y.shape[3], y.shape[1])
    return y
