# wrong: no barrier between the rounds of the tree
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void tree_kernel(const float* x, float* y, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 256) acc += x[(int64_t)blockIdx.x * cols + j];
    part[t] = acc;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1)
        if (t < d) part[t] += part[t + d];
    if (t == 0) y[blockIdx.x] = part[0];
}

torch::Tensor tree(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty({x.size(0)}, x.options());
    tree_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
'''

ext = load_inline(name="tree_ext", cpp_sources="torch::Tensor tree(torch::Tensor x);", cuda_sources=SOURCE, functions=["tree"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.tree(x)
