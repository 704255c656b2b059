import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_SRC = """
#include <torch/extension.h>
#include <cuda_runtime.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <typename T>
__global__ void ln_kernel(const T* __restrict__ x, const T* __restrict__ r, const T* __restrict__ w,
                          const T* __restrict__ b, T* __restrict__ y, const int n, const float eps) {
    const int row = blockIdx.x;
    __shared__ float s_mean, s_rstd;
    __shared__ float red[2][32];
    float mean = 0.f, m2 = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mean += (float)x[row * n + i];
    for (int o = 16; o; o >>= 1) mean += __shfl_xor_sync(0xffffffff, mean, o);
    if ((threadIdx.x & 31) == 0) red[0][threadIdx.x >> 5] = mean;
    __syncthreads();
    if (threadIdx.x == 0) {
        float t = 0.f;
        for (int i = 0; i < (blockDim.x + 31) / 32; ++i) t += red[0][i];
        s_mean = t / n;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float d = (float)x[row * n + i] - s_mean;
        m2 += d * d;
    }
    for (int o = 16; o; o >>= 1) m2 += __shfl_xor_sync(0xffffffff, m2, o);
    if ((threadIdx.x & 31) == 0) red[1][threadIdx.x >> 5] = m2;
    __syncthreads();
    if (threadIdx.x == 0) {
        float t = 0.f;
        for (int i = 0; i < (blockDim.x + 31) / 32; ++i) t += red[1][i];
        s_rstd = rsqrtf(t / n + eps);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = ((float)x[row * n + i] - s_mean) * s_rstd * (float)w[i];
        if (b != nullptr) v += (float)b[i];
        y[row * n + i] = (T)(v + (float)r[row * n + i]);
    }
}

at::Tensor layer_norm_residual(at::Tensor x, at::Tensor residual, at::Tensor weight, c10::optional<at::Tensor> bias,
                               double eps) {
    CHECK_INPUT(x);
    CHECK_INPUT(residual);
    const int n = weight.numel();
    const int rows = x.numel() / n;
    auto y = at::empty_like(x);
    dim3 grid(rows);
    dim3 block(std::min(32 * ceil_div(n, 32), 256));
    ln_kernel<float><<<grid, block>>>(
        x.data_ptr<float>(), residual.data_ptr<float>(), weight.data_ptr<float>(),
        bias.has_value() ? bias.value().data_ptr<float>() : nullptr, y.data_ptr<float>(), n, (float)eps);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) {
        throw std::runtime_error(cudaGetErrorString(err));
    }
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &layer_norm_residual, "layer norm and residual", py::arg("x"), py::arg("residual"),
          py::arg("weight"), py::arg("bias"), py::arg("eps") = 1e-5);
}
"""

ln = load_inline(name="ln_ext", cpp_sources="", cuda_sources=_SRC)


class ModelNew(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x, residual):
        x = x.contiguous()
        residual = residual.contiguous()
        return ln.forward(x, residual, self.weight, self.bias, self.eps)
