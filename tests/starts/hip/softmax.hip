// Reductions over warpSize lanes, then over the waves of a block by LDS.
#include <hip/hip_runtime.h>

#define THREADS 256

template <typename Op>
__device__ float block_reduce(float v, float first, Op op) {
    __shared__ float waves[THREADS / 32];
    for (int offset = warpSize / 2; offset > 0; offset >>= 1) v = op(v, __shfl_xor(v, offset));
    __syncthreads();
    if (threadIdx.x % warpSize == 0) waves[threadIdx.x / warpSize] = v;
    __syncthreads();
    v = first;
    for (int w = 0; w < THREADS / warpSize; ++w) v = op(v, waves[w]);
    return v;
}

__global__ __launch_bounds__(THREADS) void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    const float* in = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    auto larger = [](float a, float b) { return fmaxf(a, b); };
    auto add = [](float a, float b) { return a + b; };
    float m = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += THREADS) m = fmaxf(m, in[c]);
    m = block_reduce(m, -INFINITY, larger);
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += THREADS) s += expf(in[c] - m);
    s = block_reduce(s, 0.f, add);
    for (int c = threadIdx.x; c < cols; c += THREADS) out[c] = expf(in[c] - m) / s;
}

void softmax(const float* x, float* y, int rows, int cols) {
    softmax_kernel<<<rows, THREADS>>>(x, y, cols);
    if (hipGetLastError() != hipSuccess) return;
}
