# E8: a kernel that never ends
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void spin_kernel(volatile float* y) { while (y[0] == 0.0f) { } }

torch::Tensor spin(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    spin_kernel<<<1, 1>>>(y.data_ptr<float>());
    return y;
}
'''

ext = load_inline(name="spin_ext", cpp_sources="torch::Tensor spin(torch::Tensor x);", cuda_sources=SOURCE, functions=["spin"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.spin(x)
