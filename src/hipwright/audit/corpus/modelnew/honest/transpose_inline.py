# A two-dimensional grid.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void transpose_kernel(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    if (r < rows && c < cols) y[(int64_t)c * rows + r] = 0.5f * x[(int64_t)r * cols + c];
}

torch::Tensor half_transpose(torch::Tensor x) {
    x = x.contiguous();
    int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty({cols, rows}, x.options());
    dim3 grid((cols + 15) / 16, (rows + 15) / 16), block(16, 16);
    transpose_kernel<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    return y;
}
'''

ext = load_inline(name="half_transpose_ext", cpp_sources="torch::Tensor half_transpose(torch::Tensor x);", cuda_sources=SOURCE, functions=["half_transpose"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.half_transpose(x)
