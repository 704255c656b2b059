import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void vec4_kernel(const float4* x, const float4* y, float4* out, float alpha, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 a = x[i], b = y[i];
        out[i] = make_float4(a.x + alpha * b.x, a.y + alpha * b.y, a.z + alpha * b.z, a.w + alpha * b.w);
    }
}

__global__ void tail_kernel(const float* x, const float* y, float* out, float alpha, int from, int n) {
    int i = from + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + alpha * y[i];
}

static void launch(torch::Tensor x, torch::Tensor y, torch::Tensor out, float alpha, int n) {
    int n4 = n / 4;
    if (n4 > 0) {
        vec4_kernel<<<(n4 + 127) / 128, 128>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()),
            reinterpret_cast<const float4*>(y.data_ptr<float>()), reinterpret_cast<float4*>(out.data_ptr<float>()), alpha, n4);
    }
    if (n % 4 != 0) {
        tail_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), alpha, n4 * 4, n);
    }
}

void add_scaled(torch::Tensor x, torch::Tensor y, torch::Tensor out, double alpha) {
    TORCH_CHECK(x.numel() == y.numel() && x.numel() == out.numel(), "sizes differ");
    launch(x, y, out, alpha, x.numel());
}
"""

_module = None


def _get():
    global _module
    if _module is None:
        _module = load_inline(
            name="add_scaled",
            cpp_sources="void add_scaled(torch::Tensor x, torch::Tensor y, torch::Tensor out, double alpha);",
            cuda_sources=CUDA,
            functions=["add_scaled"],
        )
    return _module


ext = _get()


class ModelNew(nn.Module):
    def __init__(self, alpha=2.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x, y):
        x = x.clone(memory_format=torch.contiguous_format)
        y = y.clone(memory_format=torch.contiguous_format)
        out = torch.empty_like(x)
        ext.add_scaled(x, y, out, self.alpha)
        return out
