# Parameters are passed to the extension.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void scale_bias_kernel(const float* x, const float* g, const float* b, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i] * g[i % c] + b[i % c];
    y[i] = v < 0.0f ? 0.0f : v;
}

torch::Tensor scale_bias(torch::Tensor x, torch::Tensor g, torch::Tensor b) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    int n = x.numel(), c = x.size(-1);
    scale_bias_kernel<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, c);
    return y;
}
'''

ext = load_inline(name="scale_bias_ext", cpp_sources="torch::Tensor scale_bias(torch::Tensor x, torch::Tensor g, torch::Tensor b);", cuda_sources=SOURCE, functions=["scale_bias"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return ext.scale_bias(x, self.gamma, self.bias)
