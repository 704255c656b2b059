// The form of a self-written library: extern "C", pointers, a count, a stream.
#include <cuda_runtime.h>

__global__ void add_relu_kernel(const float* a, const float* b, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = a[i] + b[i];
        y[i] = v > 0.0f ? v : 0.0f;
    }
}

extern "C" void add_relu(const float* x, const float* residual, float* y, int n, cudaStream_t stream) {
    dim3 block(128);
    dim3 grid((n + block.x - 1) / block.x);
    add_relu_kernel<<<grid, block, 0, stream>>>(x, residual, y, n);
}
