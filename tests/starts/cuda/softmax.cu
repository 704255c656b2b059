// Softmax in one warp a row, with two reductions over 32 lanes.
#include <cuda_runtime.h>

constexpr int WARP = 32;

__inline__ __device__ float warp_max(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, offset));
    return v;
}

__inline__ __device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

__global__ void softmax_kernel(const float* __restrict__ input, float* __restrict__ output, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* in = input + (size_t)row * cols;
    float* out = output + (size_t)row * cols;
    float m = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += WARP) m = fmaxf(m, in[c]);
    m = warp_max(m);
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += WARP) s += expf(in[c] - m);
    s = warp_sum(s);
    for (int c = threadIdx.x; c < cols; c += WARP) out[c] = expf(in[c] - m) / s;
}

extern "C" void softmax_forward(const float* input, float* output, int rows, int cols) {
    dim3 block(WARP, 4);
    softmax_kernel<<<(rows + 3) / 4, block>>>(input, output, rows, cols);
}
