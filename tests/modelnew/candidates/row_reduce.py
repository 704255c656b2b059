import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define WARP_SIZE 32
#define FULL_MASK 0xffffffff

__inline__ __device__ float warp_sum(float v) {
    #pragma unroll
    for (int offset = WARP_SIZE / 2; offset > 0; offset /= 2)
        v += __shfl_down_sync(FULL_MASK, v, offset);
    return v;
}

__global__ void __launch_bounds__(256) rms_kernel(const float* __restrict__ x, float* __restrict__ out, int cols, float eps) {
    __shared__ float partial[WARP_SIZE];
    const float* row = x + (int64_t)blockIdx.x * cols;
    float sum = 0.f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i] * row[i];
    int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < (blockDim.x + WARP_SIZE - 1) / WARP_SIZE ? partial[lane] : 0.f;
        sum = warp_sum(sum);
        if (lane == 0) out[blockIdx.x] = sqrtf(sum / cols + eps);
    }
}

torch::Tensor rms(const torch::Tensor& x, double eps) {
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
    TORCH_CHECK(x.dim() == 2, "x must have two dimensions, not ", x.dim());
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float");
    auto xc = x.contiguous();
    int64_t rows = xc.size(0), cols = xc.size(1);
    auto out = torch::empty({rows}, xc.options());
    if (rows == 0) return out;
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    rms_kernel<<<rows, 256, 0, stream>>>(xc.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(cols), (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""


class ModelNew(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.op = load_inline(
            name="rms_op",
            cpp_sources=["torch::Tensor rms(const torch::Tensor& x, double eps);"],
            cuda_sources=[source],
            functions=["rms"],
            extra_cuda_cflags=["-O3", "--use_fast_math"],
        )

    def forward(self, x):
        return self.op.rms(x, self.eps)
