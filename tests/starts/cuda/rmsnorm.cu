// Dynamic shared memory, its size computed by the host.
#include <cuda_runtime.h>

__global__ void rmsnorm_kernel(float* y, const float* x, const float* w, int cols, float eps) {
    extern __shared__ float sums[];
    const float* row = x + (size_t)blockIdx.x * cols;
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) s += row[c] * row[c];
    sums[threadIdx.x] = s;
    __syncthreads();
    for (unsigned int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    float scale = rsqrtf(sums[0] / cols + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(size_t)blockIdx.x * cols + c] = row[c] * scale * w[c];
}

void rmsnorm(float* out, const float* x, const float* weight, int rows, int cols, float eps) {
    int threads = 64;
    rmsnorm_kernel<<<rows, threads, threads * sizeof(float)>>>(out, x, weight, cols, eps);
}
