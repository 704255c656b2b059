# float64 throughout.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void dot_kernel(const double* x, const double* w, double* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double acc = 0.0;
    for (int j = 0; j < cols; ++j) acc += x[(int64_t)r * cols + j] * w[j];
    y[r] = acc;
}

torch::Tensor dot(torch::Tensor x, torch::Tensor w) {
    x = x.contiguous();
    int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty({rows}, x.options());
    dot_kernel<<<(rows + 63) / 64, 64>>>(x.data_ptr<double>(), w.data_ptr<double>(), y.data_ptr<double>(), rows, cols);
    return y;
}
'''

ext = load_inline(name="dot_ext", cpp_sources="torch::Tensor dot(torch::Tensor x, torch::Tensor w);", cuda_sources=SOURCE, functions=["dot"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, dtype=torch.float64))

    def forward(self, x):
        return ext.dot(x, self.weight)
