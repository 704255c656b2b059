# A plain product with the module's weight and bias.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float acc = 0.0f;
    for (int p = 0; p < k; ++p) acc += x[(int64_t)row * k + p] * w[(int64_t)col * k + p];
    y[(int64_t)row * n + col] = acc + b[col];
}

torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    x = x.contiguous();
    int m = x.size(0), k = x.size(1), n = w.size(0);
    auto y = torch::empty({m, n}, x.options());
    linear_kernel<<<dim3((n + 63) / 64, m), 64>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), m, n, k);
    return y;
}
'''

ext = load_inline(name="linear_ext", cpp_sources="torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor b);", cuda_sources=SOURCE, functions=["linear"])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.proj = nn.Linear(inner, outer)

    def forward(self, x):
        return ext.linear(x, self.proj.weight, self.proj.bias)
