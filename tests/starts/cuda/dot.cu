// Two passes: partial sums of blocks, then one block; the warps of a block meet in shared memory.
#include <torch/extension.h>

#define WARP_SIZE 32
#define BLOCK 256

__device__ float block_sum(float v) {
    __shared__ float partial[BLOCK / WARP_SIZE];
    #pragma unroll
    for (int mask = WARP_SIZE / 2; mask > 0; mask >>= 1) v += __shfl_xor_sync(0xffffffff, v, mask);
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = v;
    __syncthreads();
    v = threadIdx.x < BLOCK / WARP_SIZE ? partial[threadIdx.x] : 0.f;
    if (threadIdx.x < WARP_SIZE)
        for (int mask = WARP_SIZE / 2; mask > 0; mask >>= 1) v += __shfl_xor_sync(0xffffffff, v, mask);
    return v;
}

__global__ void partial_dot(const float* a, const float* b, float* sums, int n) {
    float s = 0.f;
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) s += a[i] * b[i];
    s = block_sum(s);
    if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

__global__ void last_sum(const float* sums, float* out, int n) {
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += BLOCK) s += sums[i];
    s = block_sum(s);
    if (threadIdx.x == 0) *out = s;
}

torch::Tensor dot(torch::Tensor x, torch::Tensor y) {
    int n = x.numel();
    int blocks = std::max(1, std::min((n + BLOCK - 1) / BLOCK, 64));
    auto sums = torch::empty({blocks}, x.options());
    auto out = torch::empty({}, x.options());
    partial_dot<<<blocks, BLOCK>>>(x.data_ptr<float>(), y.data_ptr<float>(), sums.data_ptr<float>(), n);
    last_sum<<<1, BLOCK>>>(sums.data_ptr<float>(), out.data_ptr<float>(), blocks);
    return out;
}
