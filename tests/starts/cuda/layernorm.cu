// A block a row; the warps' sums meet in shared memory.
#include <torch/extension.h>

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float2 warp_reduce(float2 v) {
    #pragma unroll
    for (int offset = 16; offset >= 1; offset >>= 1) {
        v.x += __shfl_down_sync(0xffffffff, v.x, offset);
        v.y += __shfl_down_sync(0xffffffff, v.y, offset);
    }
    return v;
}

__global__ void layernorm_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                 const float* __restrict__ beta, float* __restrict__ y, int features, float eps) {
    __shared__ float2 sums[kThreads / 32];
    __shared__ float mean, inverse;
    const float* row = x + (long)blockIdx.x * features;
    float s = 0.f;
    for (int i = threadIdx.x; i < features; i += kThreads) s += row[i];
    float2 v = warp_reduce(make_float2(s, 0.f));
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
        for (int w = 0; w < kThreads / 32; ++w) total += sums[w].x;
        mean = total / features;
    }
    __syncthreads();
    float q = 0.f;
    for (int i = threadIdx.x; i < features; i += kThreads) { float d = row[i] - mean; q += d * d; }
    v = warp_reduce(make_float2(0.f, q));
    if (lane == 0) sums[warp] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.f;
        for (int w = 0; w < kThreads / 32; ++w) total += sums[w].y;
        inverse = rsqrtf(total / features + eps);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < features; i += kThreads)
        y[(long)blockIdx.x * features + i] = (row[i] - mean) * inverse * gamma[i] + beta[i];
}

}  // namespace

torch::Tensor layernorm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps = 1e-5) {
    TORCH_CHECK(x.dim() >= 1, "rows");
    const int features = gamma.numel();
    const int rows = x.numel() / features;
    auto y = torch::empty_like(x);
    layernorm_kernel<<<rows, kThreads>>>(
        x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(), features, eps);
    return y;
}
