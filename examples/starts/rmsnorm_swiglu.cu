#include <torch/extension.h>
#include <cuda_runtime.h>

#define WARP 32
__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

__global__ void rms_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int cols, float eps) {
    int row = blockIdx.x;
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += WARP) { float v = x[row * (long)cols + c]; s += v * v; }
    s = warp_sum(s);
    float inv = rsqrtf(s / cols + eps);
    int half = cols / 2;
    for (int c = threadIdx.x; c < half; c += WARP) {
        float a = x[row * (long)cols + c] * inv * w[c], b = x[row * (long)cols + half + c] * inv * w[half + c];
        y[row * (long)half + c] = a / (1.f + expf(-a)) * b;
    }
}

torch::Tensor rmsnorm_swiglu(torch::Tensor x, torch::Tensor weight, double eps) {
    TORCH_CHECK(x.is_contiguous(), "contiguous");
    int cols = x.size(-1);
    int rows = x.numel() / cols;
    auto y = torch::empty({x.size(0), x.size(1), cols / 2}, x.options());
    rms_kernel<<<rows, WARP>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), cols, (float)eps);
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &rmsnorm_swiglu); }
