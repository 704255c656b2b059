// refused: line 9: cannot be converted: the launch stands in main, which is not converted
#include <cstdio>

__global__ void gelu_kernel(const float* x, float* y, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.f + erff(x[i] * 0.70710678f)) * scale;
}

int main() {
    float *x, *y;
    cudaMalloc(&x, 4096);
    cudaMalloc(&y, 4096);
    gelu_kernel<<<4, 256>>>(x, y, 0.75f, 1024);
    cudaDeviceSynchronize();
    return 0;
}
