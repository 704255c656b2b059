# Rows by int64 index.
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void embed_kernel(const int64_t* index, const float* table, float* y, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * table[index[i / width] * width + i % width];
}

torch::Tensor embed(torch::Tensor index, torch::Tensor table) {
    index = index.contiguous();
    int width = table.size(1);
    auto y = torch::empty({index.size(0), index.size(1), width}, table.options());
    int n = y.numel();
    embed_kernel<<<(n + 127) / 128, 128>>>(index.data_ptr<int64_t>(), table.data_ptr<float>(), y.data_ptr<float>(), n, width);
    return y;
}
'''

ext = load_inline(name="embed_ext", cpp_sources="torch::Tensor embed(torch::Tensor index, torch::Tensor table);", cuda_sources=SOURCE, functions=["embed"])


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, index):
        return ext.embed(index, self.table.weight)
