"""The library multiplies, the kernel adds the bias and cuts below zero."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void bias_relu(float* h, const float* b, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) h[i] = fmaxf(h[i] + b[i % c], 0.0f);
}
'''


def forward(self, x):
    h = torch.nn.functional.linear(x, self.up.weight).contiguous()
    bias_relu[cdiv(h.numel(), 128), 128](h, self.up.bias, h.numel(), h.shape[-1])
    return torch.nn.functional.linear(h, self.down.weight, self.down.bias)
