# E8: an illegal address takes the context down
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void wild_kernel(float* y) { y[1ll << 40] = 1.0f; }

torch::Tensor wild(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    wild_kernel<<<1, 1>>>(y.data_ptr<float>());
    return y;
}
'''

ext = load_inline(name="wild_ext", cpp_sources="torch::Tensor wild(torch::Tensor x);", cuda_sources=SOURCE, functions=["wild"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.wild(x)
