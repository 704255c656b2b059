import torch.nn as nn
from torch.utils.cpp_extension import load_inline

depthwise_cuda = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ inline float hardswish(float v) { return v * fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f; }

__global__ void depthwise_kernel(const float* x, const float* w, const float* b, float* y, int channels, int height,
                                 int width, int k, int pad, bool has_bias) {
    int ox = blockIdx.x * blockDim.x + threadIdx.x;
    int oy = blockIdx.y * blockDim.y + threadIdx.y;
    int plane = blockIdx.z, c = plane % channels;
    if (ox >= width || oy >= height) return;
    float acc = has_bias ? b[c] : 0.f;
    for (int i = 0; i < k; ++i)
        for (int j = 0; j < k; ++j) {
            int iy = oy + i - pad, ix = ox + j - pad;
            if (iy >= 0 && iy < height && ix >= 0 && ix < width)
                acc += x[(plane * height + iy) * width + ix] * w[(c * k + i) * k + j];
        }
    y[(plane * height + oy) * width + ox] = hardswish(acc);
}

torch::Tensor depthwise(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t padding) {
    auto n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
    auto y = torch::empty({n, c, h, w}, x.options());
    dim3 block(16, 8, 1);
    dim3 grid;
    grid.x = (w + block.x - 1) / block.x;
    grid.y = (h + block.y - 1) / block.y;
    grid.z = n * c;
    const float* b = bias.defined() ? bias.data_ptr<float>() : nullptr;
    depthwise_kernel<<<grid, block>>>(x.data_ptr<float>(), weight.data_ptr<float>(), b, y.data_ptr<float>(), c, h, w,
                                      weight.size(2), padding, bias.defined());
    return y;
}
"""

depthwise = load_inline(
    name="depthwise",
    cpp_sources="torch::Tensor depthwise(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t padding);",
    cuda_sources=depthwise_cuda,
    functions=["depthwise"],
)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel, bias):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=bias)
        self.padding = kernel // 2

    def forward(self, x):
        return depthwise.depthwise(x.contiguous(), self.conv.weight, self.conv.bias, self.padding)
