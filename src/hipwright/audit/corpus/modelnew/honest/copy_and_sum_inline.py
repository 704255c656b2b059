# Two outputs in a vector.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
#include <vector>
__global__ void both_kernel(const float* x, float* y, float* s, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) { float v = x[(int64_t)r * cols + j]; y[(int64_t)r * cols + j] = v; acc += v; }
    s[r] = acc;
}

std::vector<torch::Tensor> both(torch::Tensor x) {
    x = x.contiguous();
    int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty_like(x);
    auto s = torch::empty({rows}, x.options());
    both_kernel<<<(rows + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), s.data_ptr<float>(), rows, cols);
    return {y, s};
}
'''

ext = load_inline(name="both_ext", cpp_sources="std::vector<torch::Tensor> both(torch::Tensor x);", cuda_sources=SOURCE, functions=["both"])


class ModelNew(nn.Module):
    def forward(self, x):
        y, s = ext.both(x)
        return y, s
