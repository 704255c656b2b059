import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_cuda = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#define CUDA_CHECK(expr) do { cudaError_t e_ = (expr); if (e_ != cudaSuccess) { printf("%s", cudaGetErrorString(e_)); } } while (0)

__global__ void stats_kernel(const float* x, float* mean, float* scale, int rows, int cols, float eps) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float m = 0.f, v = 0.f;
    for (int r = 0; r < rows; ++r) m += x[r * cols + c];
    m /= rows;
    for (int r = 0; r < rows; ++r) { float d = x[r * cols + c] - m; v += d * d; }
    mean[c] = m;
    scale[c] = 1.f / sqrtf(v / rows + eps);
}

__global__ void apply_kernel(const float* x, const float* mean, const float* scale, float* y, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] = (x[i] - mean[i % cols]) * scale[i % cols];
}

torch::Tensor column_norm(torch::Tensor x, float eps) {
    const int rows = x.size(0), cols = x.size(1);
    auto mean = torch::empty({cols}, x.options());
    auto scale = torch::empty({cols}, x.options());
    auto y = torch::empty_like(x);
    stats_kernel<<<(cols + 63) / 64, 64>>>(x.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(), rows, cols, eps);
    CUDA_CHECK(cudaGetLastError());
    const int total = rows * cols;
    apply_kernel<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(),
                                               y.data_ptr<float>(), rows, cols);
    CUDA_CHECK(cudaGetLastError());
    return y;
}
"""
_cpp = "torch::Tensor column_norm(torch::Tensor x, float eps);"


class ColumnNorm(torch.autograd.Function):
    ext = None

    @staticmethod
    def forward(ctx, x, eps):
        ctx.eps = eps
        return _ext.column_norm(x, eps)


_ext = load_inline(name="column_norm", cpp_sources=[_cpp], cuda_sources=[_cuda], functions=["column_norm"])


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def _run(self, x):
        if not x.is_cuda:
            x = x.cuda()
        return ColumnNorm.apply(x, self.eps)

    def forward(self, x):
        x = x.contiguous()
        with torch.no_grad():
            return self._run(x)
