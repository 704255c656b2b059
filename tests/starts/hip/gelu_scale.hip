// hipLaunchKernelGGL, a grid-stride loop, a launch function with pointers.
#include <hip/hip_runtime.h>

__global__ void gelu_scale_kernel(const float* x, float* y, float scale, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float v = x[i];
        y[i] = 0.5f * v * (1.0f + erff(v * 0.7071067811865476f)) * scale;
    }
}

extern "C" void gelu_scale(const float* x, float* y, float scale, size_t n, hipStream_t stream) {
    hipLaunchKernelGGL(gelu_scale_kernel, dim3(64), dim3(256), 0, stream, x, y, scale, n);
}
