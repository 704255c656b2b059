# Two passes per row; eps travels as a double.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void norm_kernel(const float* x, const float* g, const float* b, float* y, int rows, int c, float eps) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (int64_t)r * c;
    float mean = 0.0f, var = 0.0f;
    for (int j = 0; j < c; ++j) mean += row[j];
    mean /= c;
    for (int j = 0; j < c; ++j) { float d = row[j] - mean; var += d * d; }
    float scale = rsqrtf(var / c + eps);
    for (int j = 0; j < c; ++j) y[(int64_t)r * c + j] = (row[j] - mean) * scale * g[j] + b[j];
}

torch::Tensor norm(torch::Tensor x, torch::Tensor g, torch::Tensor b, double eps) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    int c = x.size(-1), rows = x.numel() / c;
    norm_kernel<<<(rows + 63) / 64, 64>>>(x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), rows, c, (float)eps);
    return y;
}
'''

ext = load_inline(name="norm_ext", cpp_sources="torch::Tensor norm(torch::Tensor x, torch::Tensor g, torch::Tensor b, double eps);", cuda_sources=SOURCE, functions=["norm"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return ext.norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
