// A torch extension in HIP: layer norm with two passes over LDS.
#include <torch/extension.h>
#include <hip/hip_runtime.h>

template <int THREADS>
__global__ void layernorm_kernel(const float* x, const float* weight, const float* bias, float* y, int features, float eps) {
    __shared__ float part[THREADS];
    const float* row = x + (size_t)blockIdx.x * features;
    float s = 0.f;
    for (int i = threadIdx.x; i < features; i += THREADS) s += row[i];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    float mean = part[0] / features;
    __syncthreads();
    s = 0.f;
    for (int i = threadIdx.x; i < features; i += THREADS) s += (row[i] - mean) * (row[i] - mean);
    part[threadIdx.x] = s;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    float inverse = rsqrtf(part[0] / features + eps);
    for (int i = threadIdx.x; i < features; i += THREADS)
        y[(size_t)blockIdx.x * features + i] = (row[i] - mean) * inverse * weight[i] + bias[i];
}

torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, float eps) {
    auto y = torch::empty_like(x);
    int features = weight.numel();
    constexpr int threads = 64;
    layernorm_kernel<threads><<<x.numel() / features, threads>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), features, eps);
    return y;
}
